"""Tracks which pods this node's GPUs were given to, where a kubelet runs."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from schemas.telemetry.readings import DeviceFacts, GpuPod, GpuReading
from services.telemetry.domain.pods import (
    NodeFacts,
    PodDevices,
    device_of,
    pods_of_devices,
    share_counts,
    with_uses,
)
from services.telemetry.kubernetes.pod_facts import PodFactsSource
from services.telemetry.kubernetes.pod_resources import Kubelet, kubelet
from services.telemetry.kubernetes.resource_slices import ResourceSlices
from shared.errors import UnavailableError
from shared.logging import log

# As often as a sample is taken, or an engine that lives for a few seconds has none: 1.4 ms of a
# processor for 110 pods.
LIST_SECONDS: Final = 1.0
COUNT_AGAIN_SECONDS: Final = 60.0


@dataclass(slots=True)
class PodTracker:
    """Adds pods to readings. Kubelet has no watch: it is asked every second.

    A kubelet that does not answer makes pods unknown, rather than what they were.
    """

    socket: Path
    slices: ResourceSlices
    facts: PodFactsSource
    devices: Callable[[], Sequence[DeviceFacts]]
    _pods: dict[str, tuple[GpuPod, ...]] | None = field(default=None, init=False)
    _share_counts: dict[tuple[str, str], int] = field(default_factory=dict, init=False)
    _counted_at: float = field(default=-COUNT_AGAIN_SECONDS, init=False)

    def with_pods(self, gpus: tuple[GpuReading, ...]) -> tuple[GpuReading, ...]:
        if (pods := self._pods) is None:
            return gpus
        return tuple(
            with_uses(msgspec.structs.replace(gpu, pods=pods.get(gpu.uuid, ()))) for gpu in gpus
        )

    async def run(self) -> None:
        """Ask for as long as there is a socket, until cancelled."""
        while True:
            if self.socket.exists():
                await self._follow()
            await asyncio.sleep(LIST_SECONDS)

    async def _follow(self) -> None:
        async with kubelet(self.socket) as kubelet_client:
            try:
                while True:
                    await self._list(kubelet_client)
                    await asyncio.sleep(LIST_SECONDS)
            except UnavailableError as error:
                log.warning("pods_unknown", error=str(error))
            finally:
                self._pods = None

    async def _list(self, kubelet_client: Kubelet) -> None:
        containers = await kubelet_client.pods()
        claimed = frozenset(device for container in containers for device in container.claimed)
        names = await self.slices.names(claimed)
        present = {(container.pod.namespace, container.pod.pod) for container in containers}
        facts = await self.facts.of(present)
        await self._count_shares(kubelet_client, containers)
        node = NodeFacts(
            pods=facts, share_counts=self._share_counts, share_kind=self.facts.share_kind
        )
        self._pods = pods_of_devices(containers, self.devices(), names, node)

    async def _count_shares(
        self, kubelet_client: Kubelet, containers: Sequence[PodDevices]
    ) -> None:
        """Only where a pod has a share; a kubelet that does not tell leaves it unknown."""
        if all(
            device_of(device_id) == device_id
            for container in containers
            for device_id in container.device_ids
        ):
            return
        now = asyncio.get_running_loop().time()
        if now < self._counted_at + COUNT_AGAIN_SECONDS:
            return
        self._counted_at = now
        try:
            self._share_counts = share_counts(await kubelet_client.allocatable())
        except UnavailableError as error:
            log.warning("shares_unknown", error=str(error))
            self._share_counts = {}
