"""Taking and leaving directories for what engines in pods compile."""

import sqlite3
import time
from dataclasses import dataclass

from schemas.executor.attempts import StartExperiment
from services.executor.domain.pod_cache import CacheNode, CacheUse, CacheVolume, PodCache
from services.executor.journal import pod_caches
from services.executor.journal.journal import Journal
from services.executor.runtimes.kubernetes.cluster import Cluster
from services.executor.runtimes.kubernetes.kinds import CLAIMS
from services.executor.settings import ExecutorSettings
from shared.errors import UnavailableError
from shared.kubernetes.errors import FORBIDDEN, KubernetesError
from shared.kubernetes.kinds import NODES
from shared.kubernetes.objects.common import NamedObject
from shared.kubernetes.objects.nodes import NodeDetails
from shared.logging import log

_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class PodCaches:
    """Of all engines of this executor."""

    settings: ExecutorSettings
    cluster: Cluster
    journal: Journal

    async def take(
        self, command: StartExperiment, pod_namespace: str, reference: str
    ) -> PodCache | None:
        """A directory that no other engine has; None where none is kept. That it cannot be had is
        logged: the engine does without.
        """
        volume = CacheVolume.of(self.settings.cluster_compile_cache)
        placement = command.cluster
        if volume is None or not self.settings.compile_cache_mb:
            return None
        # Where the cluster chooses the node, it is not known whose GPUs it is compiled for.
        if placement is None or placement.node_name is None:
            return None
        try:
            node = await self._node(placement.node_name)
            if node is None or not await self._is_there(volume, pod_namespace):
                return None
            use = CacheUse(
                volume=volume,
                node=node,
                namespace=command.namespace,
                pod_namespace=pod_namespace,
                engine=command.engine.engine,
                reference=reference,
                resource=placement.resource or "",
            )
            now = time.time()
            begun_after = now - self.settings.compile_cache_days * _DAY_SECONDS
            kept = await self.journal.transact(
                lambda connection: pod_caches.take(
                    connection, volume, use.key, begun_after=begun_after
                )
            )
        except (KubernetesError, UnavailableError) as error:
            log.warning("compile_cache_unavailable", volume=volume.name, error=str(error))
            return None
        new = use.new_directory(command.attempt_id.hex)
        return kept or PodCache(volume=volume, key=use.key, directory=new, begun_at=now)

    async def release(self, cache: PodCache, image_digest: str, *, is_good: bool) -> None:
        """Release the cache once nothing of its engine runs; if it is not `is_good`, it is never
        used again.
        """
        kept_cache = cache.keep_for(image_digest) if is_good else None

        def record(connection: sqlite3.Connection) -> None:
            if image_digest:
                pod_caches.forget_others(connection, cache.key, image_digest)
            if kept_cache is not None:
                pod_caches.leave(connection, kept_cache, time.time())

        if is_good and kept_cache is None:
            log.warning(
                "compile_cache_of_two_images",
                directory=cache.directory,
                was=cache.image_digest,
                found=image_digest,
            )
        try:
            await self.journal.transact(record)
        except UnavailableError as error:
            log.warning("compile_cache_forgotten", directory=cache.directory, error=str(error))

    async def _node(self, name: str) -> CacheNode | None:
        node = await self.cluster.read(NODES, name, NodeDetails)
        if node is None:
            return None
        return CacheNode(
            name=name, labels=node.metadata.labels, boot_id=node.status.node_info.boot_id
        )

    async def _is_there(self, volume: CacheVolume, pod_namespace: str) -> bool:
        """Return whether pods of the namespace may use the volume: without its claim a pod is never
        bound.
        """
        if volume.claim is None:
            return True
        try:
            claim = await self.cluster.read(
                CLAIMS, volume.claim, NamedObject, namespace=pod_namespace
            )
        except KubernetesError as error:
            if error.code == FORBIDDEN:
                return True
            raise
        if claim is None:
            log.warning(
                "compile_cache_unavailable",
                volume=volume.name,
                error=f"namespace {pod_namespace} has no PersistentVolumeClaim of this name",
            )
        return claim is not None
