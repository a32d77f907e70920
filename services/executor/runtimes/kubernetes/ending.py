"""Ending what is ours in a cluster for certain: asked, and looked for until it is gone."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schemas.executor import Runtime
from services.executor.runtimes.kubernetes.cluster import MAIN_KIND, OTHER_KINDS, Cluster, Found
from services.executor.runtimes.kubernetes.kinds import NODES, PODS, Named, PodList
from shared.kubernetes.errors import CONFLICT, NOT_FOUND, KubernetesError
from shared.kubernetes.names import Resource
from shared.logging import log

POLL_SECONDS: Final = 0.2
AGAIN_SECONDS: Final = 1.0
COMPLAIN_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 5.0  # with a node that has gone with its pods


@dataclass(slots=True, kw_only=True)
class Ending:
    """Removes everything with these labels; a pod is ended by its kubelet, which alone knows that
    nothing of it runs any more, except where its node has left the cluster.
    """

    cluster: Cluster
    kind: Runtime
    labels: Mapping[str, str]
    grace_seconds: float = 0.0
    _complained_at: float = 0.0
    _began_at: float = 0.0

    async def run(self) -> None:
        """Return once nothing is left. Takes as long as it needs."""
        self._complained_at = self._began_at = time.monotonic()
        while True:
            try:
                if not await self._step():
                    return
                self._complain("it is being removed")
                await asyncio.sleep(POLL_SECONDS)
            except KubernetesError as error:
                self._complain(str(error))
                await asyncio.sleep(AGAIN_SECONDS)

    async def _step(self) -> bool:
        """Whether anything was left."""
        main = await self._found(MAIN_KIND[self.kind])
        for each in main:
            await self._delete(each, foreground=True)
        pods = await self._found(PODS)
        for each in pods:
            await self._delete(each, grace_seconds=round(self.grace_seconds))
        if pods and time.monotonic() - self._began_at > PATIENCE_SECONDS:
            await self._forget_lost()
        if main or pods:
            return True
        others = await self.cluster.found(OTHER_KINDS[self.kind], self.labels)
        for each in others:
            await self._delete(each)
        return bool(others)

    async def _found(self, resource: Resource) -> list[Found]:
        return await self.cluster.found((resource,), self.labels)

    async def _delete(
        self, found: Found, *, foreground: bool = False, grace_seconds: int | None = None
    ) -> None:
        metadata = found.named.metadata
        if metadata.deletion_timestamp is not None:
            return
        try:
            await self.cluster.client.delete(
                found.resource,
                metadata.name,
                namespace=metadata.namespace,
                propagation="Foreground" if foreground else "Background",
                uid=metadata.uid,
                # 0 would forget the pod without waiting for its end.
                grace_seconds=None if grace_seconds is None else max(1, grace_seconds),
            )
        except KubernetesError as error:
            if error.code not in {NOT_FOUND, CONFLICT}:
                raise

    async def _forget_lost(self) -> None:
        """Pods whose node is no more: no kubelet will ever confirm their end."""
        for namespace in self.cluster.namespaces:
            for pod in (await self.cluster.listed(PODS, PodList, self.labels, namespace)).items:
                node = pod.spec.node_name
                if not node or await self.cluster.read(NODES, node, Named) is not None:
                    continue
                log.warning("pod_of_lost_node_removed", pod=pod.metadata.name, node=node)
                await self.cluster.client.delete(
                    PODS,
                    pod.metadata.name,
                    namespace=namespace,
                    uid=pod.metadata.uid,
                    grace_seconds=0,
                )

    def _complain(self, reason: str) -> None:
        now = time.monotonic()
        if now - self._complained_at < COMPLAIN_SECONDS:
            return
        self._complained_at = now
        log.error("pods_outlive_their_end", labels=dict(self.labels), reason=reason)
