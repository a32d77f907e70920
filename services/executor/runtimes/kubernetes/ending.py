"""Ending what is ours in a cluster for certain: asked, and polled until it is gone."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schemas.executor.attempts import Runtime
from services.executor.runtimes.kubernetes.cluster import (
    MAIN_KIND,
    OTHER_KINDS,
    Cluster,
    FoundObject,
)
from services.executor.runtimes.kubernetes.watched import ObjectWatch
from shared.kubernetes.errors import CONFLICT, NOT_FOUND, KubernetesError
from shared.kubernetes.kinds import NODES, PODS
from shared.kubernetes.names import Resource, label_selector
from shared.kubernetes.objects.common import NamedObject, ObjectList
from shared.kubernetes.objects.pods import PodDetails
from shared.logging import log
from shared.waiting import cancel_and_wait, wait_for

QUICK_POLL_SECONDS: Final = 0.2
POLL_SECONDS: Final = 2.0  # a watch reports sooner
COMPLAIN_SECONDS: Final = 5.0
TIMEOUT_SECONDS: Final = 5.0  # with a node that has gone with its pods


@dataclass(slots=True, kw_only=True)
class ObjectsEnding:
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
        changed = asyncio.Event()
        watches: list[asyncio.Task[None]] = []
        try:
            while True:
                changed.clear()
                try:
                    if (pause_seconds := await self._step()) is None:
                        return
                    self._complain("it is being removed")
                except KubernetesError as error:
                    self._complain(str(error))
                    pause_seconds = POLL_SECONDS
                watches = watches or self._watch(changed)
                await wait_for(changed, pause_seconds)
        finally:
            await cancel_and_wait(*watches)

    def _watch(self, changed: asyncio.Event) -> "list[asyncio.Task[None]]":
        """Watch the objects whose deletion takes time."""
        where = {"labels": label_selector(self.labels)}
        watched = [
            ObjectWatch(
                client=self.cluster.client,
                resource=resource,
                type_=NamedObject,
                where={**where, "namespace": namespace},
                on_change=changed.set,
            )
            for resource in (MAIN_KIND[self.kind], PODS)
            for namespace in self.cluster.namespaces
        ]
        return [asyncio.create_task(watch.run(), name="watch_ending") for watch in watched]

    async def _step(self) -> float | None:
        """Delete what is left, and return when to poll again if no watch reports it before; None:
        all is gone.
        """
        main = await self._find(MAIN_KIND[self.kind])
        for main_object in main:
            await self._delete(main_object, foreground=True)
        pods = await self._find(PODS)
        for pod in pods:
            await self._delete(pod, grace_seconds=round(self.grace_seconds))
        if pods and time.monotonic() - self._began_at > TIMEOUT_SECONDS:
            await self._forget_lost()
        if main or pods:
            return POLL_SECONDS
        other_objects = await self.cluster.find(OTHER_KINDS[self.kind], self.labels)
        for other_object in other_objects:
            await self._delete(other_object)
        return QUICK_POLL_SECONDS if other_objects else None

    async def _find(self, resource: Resource) -> list[FoundObject]:
        return await self.cluster.find((resource,), self.labels)

    async def _delete(
        self, target: FoundObject, *, foreground: bool = False, grace_seconds: int | None = None
    ) -> None:
        metadata = target.item.metadata
        if metadata.deletion_timestamp is not None:
            return
        try:
            await self.cluster.client.delete(
                target.resource,
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
            for pod in (
                await self.cluster.list_objects(
                    PODS, ObjectList[PodDetails], self.labels, namespace
                )
            ).items:
                node = pod.spec.node_name
                if not node or await self.cluster.read(NODES, node, NamedObject) is not None:
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
