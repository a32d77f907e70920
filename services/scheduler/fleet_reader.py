"""Joins the ledger's devices to their readings: the fleet as the next decision sees it."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from schemas.base import NodeId
from schemas.telemetry import HealthState
from services.scheduler import changes
from services.scheduler.domain.fleet import Device, Fleet, ReadingState
from services.scheduler.domain.reconciliation import foreign_processes
from services.scheduler.readings import Readings
from services.scheduler.snapshots import Release, Snapshots
from services.scheduler.store import Row
from shared.database import Connection


@dataclass(slots=True)
class FleetReader:
    """Reads the fleet, and has nodes read anew whose devices were released since their reading.

    For `grace_seconds` after the start an empty fleet may still fill, and after a node was first
    heard of it may still tell its devices.
    """

    readings: Readings
    snapshots: Snapshots
    grace_seconds: float
    system_processes: frozenset[str] = frozenset()
    clock: Callable[[], float] = time.monotonic
    _started_at_seconds: float = field(default_factory=time.monotonic)

    async def read(self, connection: Connection) -> Fleet:
        """The fleet now."""
        rows = await changes.read_devices(connection)
        nodes = await changes.read_nodes(connection)
        self.ask_for_released(rows)
        return Fleet.of(
            map(self.device, rows),
            settled=self.is_settled(map(self.settles_at, nodes), has_devices=bool(rows)),
        )

    def settles_at(self, node: Row) -> float:
        """When a node that has not told its devices is waited for no longer; monotonic."""
        if node["inventoried"]:
            return -math.inf
        return self.clock() + self.grace_seconds - float(node["known_seconds"])

    def is_settled(self, settle_at: Iterable[float], *, has_devices: bool) -> bool:
        """Whether what cannot fit on these nodes now never will."""
        now = self.clock()
        if not has_devices and now - self._started_at_seconds < self.grace_seconds:
            return False
        return all(at <= now for at in settle_at)

    def ask_for_released(self, rows: Iterable[Row]) -> None:
        """Have nodes read those of these devices that were released since their last reading."""
        released: defaultdict[tuple[NodeId, UUID], dict[str, int]] = defaultdict(dict)
        for row in rows:
            if not self.readings.is_confirmed(row["node_id"], row["uuid"], row["releases"]):
                key = (row["node_id"], row["released_by"])
                released[key][row["uuid"]] = row["releases"]
        for (node_id, reservation_id), devices in released.items():
            self.snapshots.ask(
                Release(node_id=node_id, reservation_id=reservation_id, devices=devices)
            )

    def device(self, row: Row) -> Device:
        """A device from its row, with its reading."""
        state, reading = self.readings.look_up(row["node_id"], row["uuid"], row["releases"])
        is_fresh = state is ReadingState.FRESH  # or it may show what the last holder has ended
        processes = self.readings.processes(row["node_id"], row["uuid"]) if is_fresh else None
        foreign = foreign_processes(processes, row["reservation_id"], self.system_processes)
        return Device(
            number=row["device_no"],
            node_id=row["node_id"],
            uuid=row["uuid"],
            index=row["index"],
            name=row["name"],
            memory_total_mb=row["memory_total_mb"],
            simulated=row["simulated"],
            health=HealthState(row["health"]),
            health_detail=row["health_detail"],
            cordoned=row["cordoned"],
            cordon_reason=row["cordon_reason"] if row["cordoned"] else "",
            holder=row["reservation_id"],
            quarantined=row["quarantined"],
            reading_state=state,
            reading=reading,
            compute_capability=row["compute_capability"],
            numa_node=row["numa_node"],
            mig_enabled=row["mig_enabled"],
            parent_uuid=row["parent_uuid"],
            foreign_pids=tuple(process.pid for process in foreign),
        )
