"""Reads the GPUs of nodes without a telemetry agent, again and again."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from schemas.cluster.nodes import ClusterGpuReading, ClusterNode, ReadingsSource
from services.cluster.domain.cluster_state import ClusterState
from services.cluster.pod_index import Exporter, OwnPod, PodIndex
from services.cluster.readings.pages import (
    NVIDIA_SMI,
    from_exporter,
    from_nvidia_smi,
    merge_readings,
)
from shared.clock import utcnow
from shared.kubernetes.client import KubernetesClient
from shared.kubernetes.errors import KubernetesError
from shared.kubernetes.kinds import PODS
from shared.kubernetes.pod_exec import run_in_pod
from shared.logging import log

READ_SECONDS: Final = 5.0
MAX_PAGE_BYTES: Final = 4 << 20
MAX_CSV_BYTES: Final = 64 << 10
AT_ONCE: Final = 32
Readings = tuple[ClusterGpuReading, ...]
FetchPage = Callable[[Exporter], Awaitable[str]]


class ReadingsReader:
    """The best source that a node has: its exporter, else pods of ours.

    Readings that fail keep their age; they go when the node has no source any more.
    """

    def __init__(
        self,
        client: KubernetesClient,
        state: ClusterState,
        pods: PodIndex,
        *,
        fetch_page: FetchPage,
        interval_seconds: float,
        may_exec: bool,
        on_change: Callable[[], None],
    ) -> None:
        self._client = client
        self._state = state
        self._pods = pods
        self._fetch_page = fetch_page
        self._interval_seconds = interval_seconds
        self._may_exec = may_exec
        self._on_change = on_change
        self._failing: set[str] = set()
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Read until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            began_at = clock()
            await self.read_all(self._state.nodes)
            await asyncio.sleep(max(0.0, began_at + self._interval_seconds - clock()))

    async def read_all(self, nodes: Mapping[str, ClusterNode]) -> None:
        await asyncio.gather(*(self._read(name) for name in nodes))

    async def _read(self, node: str) -> None:
        exporter, own_pods = self._pods.exporters.get(node), self._pods.own.get(node)
        if node in self._pods.agents or not (exporter or (own_pods and self._may_exec)):
            self._state.clear_readings(node)
            return
        async with self._slots:
            try:
                at = utcnow()
                if exporter is not None:
                    source = ReadingsSource.DCGM
                    readings = from_exporter(await self._fetch_page(exporter))
                else:
                    source = ReadingsSource.NVIDIA_SMI
                    readings = merge_readings(
                        [await self._run(own_pod) for own_pod in (own_pods or {}).values()]
                    )
            except KubernetesError as error:
                if node not in self._failing:
                    log.warning("readings_failed", node=node, error=str(error))
                self._failing.add(node)
                return
        self._failing.discard(node)
        if readings:
            self._state.set_readings(node, readings, source, at)
            self._on_change()

    async def _run(self, pod: OwnPod) -> Readings:
        """Run nvidia-smi in the pod; return no reading if the container's image has none."""
        ended = await run_in_pod(
            self._client,
            pod.namespace,
            pod.name,
            pod.container,
            NVIDIA_SMI,
            timeout_seconds=READ_SECONDS,
            largest_bytes=MAX_CSV_BYTES,
        )
        return from_nvidia_smi(ended.stdout.decode(errors="replace"))


async def page_through_api(client: KubernetesClient, exporter: Exporter) -> str:
    """The apiserver's way to a pod, from anywhere."""
    name = f"{exporter.name}:{exporter.port}"
    path = f"{PODS.path(exporter.namespace, name, subresource='proxy')}/metrics"
    page = await client.call("GET", path, timeout_seconds=READ_SECONDS)
    return page[:MAX_PAGE_BYTES].decode(errors="replace")
