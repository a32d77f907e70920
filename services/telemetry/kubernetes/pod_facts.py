"""What the cluster knows of this node's pods: whose they are, and their UIDs.

Kubelet's list has names alone. Only metadata is asked for, and only when a pod is new.
"""

import asyncio
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import msgspec

from schemas.cluster.nodes import GpuSharing
from schemas.gpus.kinds import GpuKind
from services.telemetry.domain.pods import PodFacts
from services.telemetry.kubernetes.resource_slices import ClusterApi, call_api
from services.telemetry.sources.source import SourceFailedError
from shared.accelerator_rules.node_labels import SHARING_LABEL
from shared.kubernetes.objects.common import MetadataDetails, NamedObject, ObjectList
from shared.labels import RESERVATION_LABEL
from shared.logging import log

AGAIN_SECONDS: Final = 10.0
LABELS_AGAIN_SECONDS: Final = 300.0
METADATA: Final = "Accept: application/json;as={kind};g=meta.k8s.io;v=v1\r\n"
TEMPLATE_HASH: Final = "pod-template-hash"
# GPU Feature Discovery's word for how the device plugin shares GPUs.
INDEX_DIGITS: Final = 4
GPU_INDEX: Final = re.compile(r"tencent\.com/predicate-gpu-idx-(\d+)")

PodName = tuple[str, str]


@dataclass(slots=True)
class PodFactsSource:
    """`node` is the node's name in the cluster. Without an `api` nothing is asked."""

    api: ClusterApi | None
    node: str
    share_kind: GpuKind = field(default=GpuKind.TIME_SLICE, init=False)
    _facts: dict[PodName, PodFacts] = field(default_factory=dict, init=False)
    _asked_at: float = field(default=-AGAIN_SECONDS, init=False)
    _labels_at: float = field(default=-LABELS_AGAIN_SECONDS, init=False)
    _present: frozenset[PodName] = field(default=frozenset(), init=False)

    async def of(self, present: AbstractSet[PodName]) -> Mapping[PodName, PodFacts]:
        """Return facts by namespace and name; a pod that the cluster does not tell of is left out.

        A name that was gone and is back is another pod.
        """
        for name in self._facts.keys() - present:
            del self._facts[name]
        self._present = frozenset(present)
        now = asyncio.get_running_loop().time()
        if self.api is not None and present:
            if present - self._facts.keys() and now >= self._asked_at + AGAIN_SECONDS:
                self._asked_at = now
                await self._ask_pods(self.api)
            if now >= self._labels_at + LABELS_AGAIN_SECONDS:
                self._labels_at = now
                await self._ask_labels(self.api)
        return self._facts

    async def _ask_pods(self, api: ClusterApi) -> None:
        selector = quote(f"spec.nodeName={self.node}")
        accept = METADATA.format(kind="PartialObjectMetadataList")
        try:
            listed = await call_api(api, f"/api/v1/pods?fieldSelector={selector}", headers=accept)
            facts = facts_in(listed)
        except (OSError, SourceFailedError, msgspec.DecodeError) as error:
            log.warning("pods_owners_unknown", error=str(error))
            return
        self._facts = {name: pod for name, pod in facts.items() if name in self._present}

    async def _ask_labels(self, api: ClusterApi) -> None:
        accept = METADATA.format(kind="PartialObjectMetadata")
        try:
            answer = await call_api(api, f"/api/v1/nodes/{self.node}", headers=accept)
            labels = msgspec.json.decode(answer, type=NamedObject).metadata.labels
        except (OSError, SourceFailedError, msgspec.DecodeError) as error:
            log.warning("node_labels_unknown", error=str(error))
            return
        is_mps = labels.get(SHARING_LABEL) == GpuSharing.MPS
        self.share_kind = GpuKind.MPS if is_mps else GpuKind.TIME_SLICE


def facts_in(listed: bytes | str) -> dict[PodName, PodFacts]:
    """Decode a list of metadata, by namespace and name. Raises msgspec.DecodeError."""
    return {
        (pod.metadata.namespace, pod.metadata.name): _facts_of(pod.metadata)
        for pod in msgspec.json.decode(listed, type=ObjectList[NamedObject]).items
    }


def _is_index(text: str) -> bool:
    """Annotations are anybody's: `int` takes neither `²` nor more digits than it likes."""
    return text.isdecimal() and len(text) <= INDEX_DIGITS


def _facts_of(pod: MetadataDetails) -> PodFacts:
    indices = {
        int(match[1]): tuple(int(part) for part in text.split(",") if _is_index(part.strip()))
        for key, text in pod.annotations.items()
        if (match := GPU_INDEX.fullmatch(key))
    }
    return PodFacts(
        uid=pod.uid,
        owner=_owner_of(pod),
        reservation_id=pod.labels.get(RESERVATION_LABEL, ""),
        gpu_indices={number: gpus for number, gpus in indices.items() if gpus},
    )


def _owner_of(pod: MetadataDetails) -> str:
    """Tell who keeps the pod, as Kind/name; of a Deployment's ReplicaSet the Deployment."""
    owner = next((owner for owner in pod.owner_references if owner.controller), None)
    if owner is None:
        return ""
    suffix = f"-{pod.labels.get(TEMPLATE_HASH, '')}"
    if owner.kind == "ReplicaSet" and len(suffix) > 1 and owner.name.endswith(suffix):
        return f"Deployment/{owner.name.removesuffix(suffix)}"
    return f"{owner.kind}/{owner.name}"
