"""Tracks which pods this node's GPUs were given to, where a kubelet runs."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from schemas.telemetry.readings import DeviceFacts, GpuPod, GpuReading
from services.telemetry.domain.pods import pods_of_devices
from services.telemetry.kubernetes.pod_resources import kubelet
from services.telemetry.kubernetes.resource_slices import ResourceSlices
from shared.errors import UnavailableError
from shared.logging import log

# As often as a sample is taken, or an engine that lives for a few seconds has none: 1.4 ms of a
# processor for 110 pods.
LIST_SECONDS: Final = 1.0


@dataclass(slots=True)
class PodTracker:
    """Adds pods to readings. Kubelet has no watch: it is asked every second.

    A kubelet that does not answer makes pods unknown, rather than what they were.
    """

    socket: Path
    slices: ResourceSlices
    devices: Callable[[], Sequence[DeviceFacts]]
    _pods: dict[str, tuple[GpuPod, ...]] | None = field(default=None, init=False)

    def with_pods(self, gpus: tuple[GpuReading, ...]) -> tuple[GpuReading, ...]:
        if (pods := self._pods) is None:
            return gpus
        return tuple(msgspec.structs.replace(gpu, pods=pods.get(gpu.uuid, ())) for gpu in gpus)

    async def run(self) -> None:
        """Ask for as long as there is a socket, until cancelled."""
        while True:
            if self.socket.exists():
                await self._follow()
            await asyncio.sleep(LIST_SECONDS)

    async def _follow(self) -> None:
        async with kubelet(self.socket) as listed:
            try:
                while True:
                    containers = await listed()
                    claimed = frozenset(device for each in containers for device in each.claimed)
                    names = await self.slices.names(claimed)
                    self._pods = pods_of_devices(containers, self.devices(), names)
                    await asyncio.sleep(LIST_SECONDS)
            except UnavailableError as error:
                log.warning("pods_unknown", error=str(error))
            finally:
                self._pods = None
