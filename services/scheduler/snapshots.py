"""Asks a node for a reading as soon as devices of it were released."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from msgspec import Struct

from schemas.base import DeviceUuid, NodeId
from schemas.telemetry import GetSnapshot, GpuSampled
from services.scheduler.readings import DeviceKey, Readings
from shared.bus import Bus
from shared.errors import RefusedError, UnavailableError
from shared.logging import log


class Release(Struct, frozen=True, kw_only=True):
    """Devices of a node that a reservation gave back, each with the count of its releases."""

    node_id: NodeId
    reservation_id: UUID
    devices: dict[DeviceUuid, int]


@dataclass(slots=True)
class Snapshots:
    """Each release is asked about once; a node that does not answer is read by its next samples."""

    bus: Bus
    readings: Readings
    timeout_seconds: float
    on_confirmed: Callable[[frozenset[DeviceKey]], None]
    _asked: dict[tuple[NodeId, DeviceUuid], int] = field(default_factory=dict)
    _releases: asyncio.Queue[Release] = field(default_factory=asyncio.Queue)

    def ask(self, release: Release) -> None:
        """Have the node read, unless that was asked for these releases before."""
        new = {
            uuid: count
            for uuid, count in release.devices.items()
            if count > self._asked.get((release.node_id, uuid), 0)
        }
        if new:
            self._asked |= {(release.node_id, uuid): count for uuid, count in new.items()}
            self._releases.put_nowait(
                Release(node_id=release.node_id, reservation_id=release.reservation_id, devices=new)
            )

    async def run(self) -> None:
        """Ask until cancelled; a slow node holds up no other."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._read(await self._releases.get()))

    async def _read(self, release: Release) -> None:
        query = GetSnapshot(node_id=release.node_id, released_reservation_id=release.reservation_id)
        try:
            sample = await self.bus.query(query, GpuSampled, timeout_seconds=self.timeout_seconds)
        except (UnavailableError, RefusedError) as error:
            log.warning("snapshot_failed", node_id=release.node_id, error=str(error))
            self.readings.expect_later(release.node_id, release.devices)
            return
        changed = self.readings.observe(sample)
        self.readings.confirm(release.node_id, release.devices)
        self.on_confirmed(changed | {(release.node_id, uuid) for uuid in release.devices})
