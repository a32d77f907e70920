"""Requests a reading of a node as soon as devices of it were released."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import UUID

from schemas.base import DeviceUuid, NodeId
from schemas.telemetry.readings import GetSnapshot, GpuSampled
from services.scheduler.observations.latest_readings import LatestReadings
from shared.errors import RefusedError, UnavailableError
from shared.logging import log
from shared.messaging.bus import Bus


class CountedDevice(Protocol):
    """A device with the count of its confirmed releases, of which `released_by` was the last."""

    @property
    def node_id(self) -> NodeId: ...
    @property
    def uuid(self) -> DeviceUuid: ...
    @property
    def releases(self) -> int: ...
    @property
    def released_by(self) -> UUID | None: ...


TIMEOUT_SECONDS: Final = 0.03  # a node answers within milliseconds
MAX_WAIT_SECONDS: Final = 0.1

# Devices of a node that a reservation gave back, each with the count of its releases; and what is
# done when they are read.
Release = tuple[NodeId, UUID | None, dict[DeviceUuid, int], asyncio.Future[None]]


@dataclass(slots=True)
class ReleaseSnapshots:
    """One request for each release; a node that does not answer is read by its next samples, and
    where the last one shows a device unused by that.
    """

    bus: Bus
    readings: LatestReadings
    timeout_seconds: float
    _requested: dict[tuple[NodeId, DeviceUuid], int] = field(default_factory=dict)
    _releases: asyncio.Queue[Release] = field(default_factory=asyncio.Queue)
    _under_way: set[asyncio.Future[None]] = field(default_factory=set)

    def request(self, devices: Iterable[CountedDevice]) -> None:
        """Have those of these devices read that were released since their last reading."""
        released: defaultdict[tuple[NodeId, UUID | None], dict[DeviceUuid, int]]
        released = defaultdict(dict)
        for device in devices:
            key = (device.node_id, device.uuid)
            if device.releases > self._requested.get(key, 0) and not self.readings.is_confirmed(
                *key, device.releases
            ):
                self._requested[key] = device.releases
                released[device.node_id, device.released_by][device.uuid] = device.releases
        for (node_id, reservation_id), counts in released.items():
            done = asyncio.get_running_loop().create_future()
            self._under_way.add(done)
            done.add_done_callback(self._under_way.discard)
            self._releases.put_nowait((node_id, reservation_id, counts, done))

    async def wait(self) -> None:
        """Wait until what was requested so far is read, at most 0.1 s.

        A scheduler that does not lead learns of a release by the query after it.
        """
        if self._under_way:
            await asyncio.wait(set(self._under_way), timeout=MAX_WAIT_SECONDS)

    async def run(self) -> None:
        """Request until cancelled; a slow node delays no other."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._read(*await self._releases.get()))

    async def _read(
        self,
        node_id: NodeId,
        reservation_id: UUID | None,
        devices: dict[DeviceUuid, int],
        done: asyncio.Future[None],
    ) -> None:
        try:
            await self._request(node_id, reservation_id, devices)
        finally:
            done.set_result(None)

    async def _request(
        self, node_id: NodeId, reservation_id: UUID | None, devices: dict[DeviceUuid, int]
    ) -> None:
        loop, unused = asyncio.get_running_loop(), self.readings.confirm_unused
        impatient = loop.call_later(TIMEOUT_SECONDS, unused, node_id, devices)
        query = GetSnapshot(node_id=node_id, released_reservation_id=reservation_id)
        try:
            sample = await self.bus.query(query, GpuSampled, timeout_seconds=self.timeout_seconds)
        except (UnavailableError, RefusedError) as error:
            log.warning("snapshot_failed", node_id=node_id, error=str(error))
            unused(node_id, devices)
            self.readings.expect_later(node_id, devices)
            return
        finally:
            impatient.cancel()
        self.readings.observe(sample)
        self.readings.confirm(node_id, devices)
