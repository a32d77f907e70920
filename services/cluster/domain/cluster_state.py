"""All nodes with GPUs as one view, kept up to date object by object."""

import fnmatch
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.cluster.nodes import (
    ClusterGpuReading,
    ClusterNode,
    GpuSupply,
    HostAmounts,
    NodeGpus,
    NodeTaint,
    ReadingsSource,
    VanishedPod,
)
from services.cluster.domain.counted_gpus import count_gpus, count_units, keep_counted
from services.cluster.domain.device_pools import DevicePools, ReservationOf
from services.cluster.domain.pod_requests import (
    effective_request,
    holds_its_node,
    host_of,
    host_request,
    total,
)
from services.cluster.domain.vanished_pods import Vanished, VanishedPods, has_ended
from shared.accelerator_rules.gpu_offers import DIVIDERS, NodeFacts, read_offer
from shared.accelerator_rules.modes import is_memory
from shared.accelerator_rules.node_labels import HOSTNAME_LABEL, cuda_of
from shared.accelerator_rules.quantities import whole
from shared.kubernetes.objects.common import Metadata
from shared.kubernetes.objects.devices import ResourceClaim, ResourceSlice
from shared.kubernetes.objects.nodes import Node
from shared.kubernetes.objects.pods import Pod

MODEL_LABEL: Final = "nvidia.com/gpu.product"
SHARED_ENDING: Final = "-SHARED"  # of a model whose GPUs a plugin shares
MEMORY_LABEL: Final = "nvidia.com/gpu.memory"


class GpuNames(Struct, frozen=True):
    """Which names are GPUs: of extended resources, where `*` stands for any ending; of drivers."""

    resources: tuple[str, ...]
    drivers: frozenset[str]
    devices: frozenset[str] = frozenset()  # custom ones, by their exact names

    def is_gpu(self, resource: str) -> bool:
        return resource in self.devices or any(
            fnmatch.fnmatchcase(resource, pattern) for pattern in self.resources
        )

    def is_kept(self, resource: str) -> bool:
        """Tell whether it counts GPUs, the memory of parts of them, or GPUs that are divided."""
        return is_memory(resource) or resource in DIVIDERS or self.is_gpu(resource)


class _Hold(Struct, frozen=True):
    """What a pod asks of its node; `requests` in units of each resource."""

    node: str
    requests: dict[str, int]
    reservation_id: UUID | None
    host: HostAmounts = HostAmounts()


class _Readings(Struct, frozen=True):
    gpus: tuple[ClusterGpuReading, ...]
    source: ReadingsSource
    at: datetime


class ClusterState:
    """Applies objects in the order in which the API lists them; each as a whole, again and again.

    A node is built anew when something that concerns it has changed, and is only reported by
    `take_changes` if it then differs. `node_id_of` is under which an agent on a node reports.
    """

    def __init__(
        self, counted: GpuNames, reservation_of: ReservationOf, node_id_of: Callable[[str], str]
    ) -> None:
        self.pools = DevicePools(counted.drivers, reservation_of)
        self.vanished = VanishedPods()
        self._counted = counted
        self._reservation_of = reservation_of
        self._node_id_of = node_id_of
        self._nodes: dict[str, Node] = {}
        self._holds: dict[str, _Hold] = {}
        self._holds_of_node: dict[str, dict[str, _Hold]] = {}
        self._readings: dict[str, _Readings] = {}
        self._uid_of_pod: dict[tuple[str, str], str] = {}
        self._view: dict[str, ClusterNode] = {}
        self._dirty: set[str] = set()

    def count_devices(self, resources: frozenset[str]) -> bool:
        """Count devices of these resources; return whether they differ from those before.

        If so, nodes and pods have to be given anew, of which only what counted was kept.
        """
        is_other = resources != self._counted.devices
        self._counted = replace(self._counted, devices=resources)
        return is_other

    @property
    def nodes(self) -> Mapping[str, ClusterNode]:
        """The nodes as of the last `take_changes`."""
        return self._view

    def take_changes(self) -> tuple[list[ClusterNode], list[str]]:
        """Nodes that differ from those taken before, and names of those that have gone."""
        changed, removed = [], []
        for name in sorted(self._dirty):
            previous, now = self._view.get(name), self._built(name)
            if now is None:
                if previous is not None:
                    del self._view[name]
                    removed.append(name)
            elif now != previous:
                self._view[name] = now
                changed.append(now)
        self._dirty.clear()
        return changed, removed

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        nodes_by_name = {node.metadata.name: node for node in nodes}
        for name in self._nodes.keys() - nodes_by_name.keys():
            self.remove_node(name)
        for node in nodes_by_name.values():
            self.apply_node(node)

    def apply_node(self, node: Node) -> None:
        name = node.metadata.name
        self._nodes[name] = keep_counted(node, self._counted.is_kept)
        self.vanished.apply_node(node)
        self._dirty.add(name)

    def remove_node(self, name: str) -> None:
        self._nodes.pop(name, None)
        self.vanished.forget(name)
        self._readings.pop(name, None)
        self._dirty.add(name)

    def replace_pods(
        self, pods: Iterable[Pod], now: datetime, watched_nodes: Collection[str] = ()
    ) -> None:
        """Take all pods anew. How those that are missing went was not seen: on nodes whose agent
        will tell soon they count as vanished.
        """
        pods_by_key = {_key(pod.metadata): pod for pod in pods}
        for key in self._uid_of_pod.keys() - pods_by_key.keys():
            hold = self._holds.get(self._uid_of_pod[key])
            if hold is not None and hold.node in watched_nodes:
                self._vanish(key, now)
            self.remove_pod(key)
        for pod in pods_by_key.values():
            self.apply_pod(pod)

    def apply_pod(self, pod: Pod) -> None:
        reservation_id = self._reservation_of(pod.metadata.labels)
        holds = holds_its_node(pod)
        requests = effective_request(pod, self._counted.is_kept) if holds else {}
        key = _key(pod.metadata)
        if self._uid_of_pod.get(key, pod.metadata.uid) != pod.metadata.uid:
            self.remove_pod(key)  # another one of its name, seen in one step
        if not holds and reservation_id is None:
            self.remove_pod(key)
            return
        self._uid_of_pod[key] = uid = pod.metadata.uid
        hold = _Hold(pod.spec.node_name, requests, reservation_id, host_request(pod))
        self._hold(uid, hold if holds else None)
        self._dirty |= self.pools.apply_pod(uid, reservation_id)

    def delete_pod(self, pod: Pod, now: datetime) -> None:
        """Remove a pod that the API forgot, as it was by then; one that may run on has vanished."""
        key = _key(pod.metadata)
        if self._uid_of_pod.get(key) != pod.metadata.uid:
            return
        if not has_ended(pod):
            self._vanish(key, now)
        self.remove_pod(key)

    def remove_pod(self, key: tuple[str, str]) -> None:
        """Remove a pod by namespace and name."""
        if (uid := self._uid_of_pod.pop(key, None)) is not None:
            self._hold(uid, None)
            self._dirty |= self.pools.apply_pod(uid, None)

    def replace_slices(self, slices: Iterable[ResourceSlice]) -> None:
        slices_by_name = {resource_slice.metadata.name: resource_slice for resource_slice in slices}
        for name in self.pools.slice_names - slices_by_name.keys():
            self.remove_slice(name)
        for resource_slice in slices_by_name.values():
            self.apply_slice(resource_slice)

    def apply_slice(self, slice_: ResourceSlice) -> None:
        self._dirty |= self.pools.apply_slice(slice_)

    def remove_slice(self, name: str) -> None:
        self._dirty |= self.pools.remove_slice(name)

    def replace_claims(self, claims: Iterable[ResourceClaim]) -> None:
        claims_by_key = {_key(claim.metadata): claim for claim in claims}
        for key in self.pools.claim_keys - claims_by_key.keys():
            self.remove_claim(key)
        for claim in claims_by_key.values():
            self.apply_claim(claim)

    def apply_claim(self, claim: ResourceClaim) -> None:
        self._dirty |= self.pools.apply_claim(claim)

    def remove_claim(self, key: tuple[str, str]) -> None:
        """Remove a claim by namespace and name."""
        self._dirty |= self.pools.remove_claim(key)

    def set_readings(
        self,
        node: str,
        gpus: tuple[ClusterGpuReading, ...],
        source: ReadingsSource,
        at: datetime,
    ) -> None:
        if node in self._nodes:
            self._readings[node] = _Readings(gpus, source, at)
            self._dirty.add(node)

    def clear_readings(self, node: str) -> None:
        if self._readings.pop(node, None) is not None:
            self._dirty.add(node)

    def _vanish(self, key: tuple[str, str], now: datetime) -> None:
        uid = self._uid_of_pod[key]
        hold = self._holds.get(uid)
        node = self._nodes.get(hold.node) if hold is not None else None
        if hold is None or node is None or not hold.requests:
            return
        pod = VanishedPod(
            uid=uid,
            namespace=key[0],
            name=key[1],
            since_at=now,
            units=hold.requests,
            reservation_id=hold.reservation_id,
        )
        boot_id = node.status.node_info.boot_id
        self._dirty |= self.vanished.add([Vanished(node=hold.node, boot_id=boot_id, pod=pod)])

    def _hold(self, uid: str, hold: _Hold | None) -> None:
        previous_hold = self._holds.pop(uid, None)
        if previous_hold is not None and previous_hold == hold:
            self._holds[uid] = previous_hold
            return
        if previous_hold is not None:
            del self._holds_of_node[previous_hold.node][uid]
            if not self._holds_of_node[previous_hold.node]:
                del self._holds_of_node[previous_hold.node]
            self._dirty.add(previous_hold.node)
        if hold is not None:
            self._holds[uid] = hold
            self._holds_of_node.setdefault(hold.node, {})[uid] = hold
            self._dirty.add(hold.node)

    def _built(self, name: str) -> ClusterNode | None:
        node = self._nodes.get(name)
        if node is None:
            return None
        facts = self._facts(name, node)
        gpus = (*self._count_gpus(name, node, facts), *self._list_published_gpus(name, facts))
        if not gpus:
            return None
        labels = node.metadata.labels
        shares = [share for _, share in self.pools.shares(name)]
        # Labels of Feature Discovery stay behind, stale, where a DRA driver took its place.
        labelled_model = labels.get(MODEL_LABEL, "").removesuffix(SHARED_ENDING) or None
        model = next((share.model for share in shares if share.model), labelled_model)
        memory_mb = next((share.memory_mb for share in shares if share.memory_mb), None)
        readings = self._readings.get(name)
        return ClusterNode(
            name=name,
            node_id=self._node_id_of(name),
            hostname=labels.get(HOSTNAME_LABEL),
            is_ready=any(c.type == "Ready" and c.status == "True" for c in node.status.conditions),
            is_cordoned=node.spec.unschedulable,
            gpus=gpus,
            taints=tuple(
                NodeTaint(key=taint.key, effect=taint.effect, value=taint.value)
                for taint in node.spec.taints
            ),
            gpu_model=model,
            gpu_memory_mb=memory_mb or whole(labels.get(MEMORY_LABEL, "")) or None,
            readings=readings.gpus if readings is not None else (),
            readings_source=readings.source if readings is not None else None,
            readings_at=readings.at if readings is not None else None,
            cuda_driver_version=str(cuda) if (cuda := cuda_of(labels)) is not None else None,
            allocatable_host=host_of(node.status.allocatable),
            requested_host=total(hold.host for hold in self._holds_of_node.get(name, {}).values()),
            labels=labels,
            vanished=self.vanished.on(name),
        )

    def _facts(self, name: str, node: Node) -> NodeFacts:
        devices: Counter[str] = Counter()
        usable: Counter[str] = Counter()
        reused = set()
        for driver, share in self.pools.shares(name):
            devices[driver] += share.capacity
            usable[driver] += share.allocatable
            if share.is_reused:
                reused.add(driver)
        return NodeFacts(
            labels=node.metadata.labels,
            annotations=node.metadata.annotations,
            capacity=count_units(node.status.capacity) | devices,
            allocatable=count_units(node.status.allocatable) | usable,
            reused=frozenset(reused),
        )

    def _count_gpus(self, name: str, node: Node, facts: NodeFacts) -> list[NodeGpus]:
        holds = list(self._holds_of_node.get(name, {}).values())
        resource_names = (
            node.status.capacity.keys()
            | node.status.allocatable.keys()
            | {resource for hold in holds for resource in hold.requests}
        )
        pod_requests = [(hold.requests, hold.reservation_id) for hold in holds]
        counted = [
            count_gpus(resource, node, read_offer(resource, facts), pod_requests)
            for resource in sorted(filter(self._counted.is_gpu, resource_names))
            if facts.capacity.get(resource)
            or facts.allocatable.get(resource)
            or any(resource in requests for requests, _ in pod_requests)
        ]
        return [
            node_gpus
            for node_gpus in counted
            if node_gpus.is_refused
            or node_gpus.capacity
            or node_gpus.allocatable
            or node_gpus.requested
        ]

    def _list_published_gpus(self, name: str, facts: NodeFacts) -> list[NodeGpus]:
        by_driver: dict[str, NodeGpus] = {}
        for driver, share in self.pools.shares(name):
            if not share.capacity:
                continue
            previous = by_driver.get(driver) or NodeGpus(
                resource=driver, supply=GpuSupply.DRA, capacity=0, allocatable=0, requested=0
            )
            by_driver[driver] = replace(
                previous,
                capacity=previous.capacity + share.capacity,
                allocatable=previous.allocatable + share.allocatable,
                requested=previous.requested + share.allocatable - share.free,
                by_reservation={
                    reservation_id: previous.by_reservation.get(reservation_id, 0)
                    + share.by_reservation.get(reservation_id, 0)
                    for reservation_id in previous.by_reservation.keys()
                    | share.by_reservation.keys()
                },
            )
        offers = {driver: read_offer(driver, facts) for driver in by_driver}
        return [
            replace(gpus, allocatable=0, is_refused=True, note=offers[driver].note)
            if offers[driver].is_refused
            else gpus
            for driver, gpus in by_driver.items()
        ]


def _key(metadata: Metadata) -> tuple[str, str]:
    return metadata.namespace, metadata.name
