"""Joins the ledger's devices to their readings: the fleet as the next decision sees it."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from schemas.scheduler.devices import CordonState
from services.scheduler.domain.drift.detection import foreign_processes, measure_unlisted_mb
from services.scheduler.domain.faults import cordon_state
from services.scheduler.domain.model.fleet import Device, Fleet, ReadingState, sum_used_mb
from services.scheduler.ledger import change_feed
from services.scheduler.ledger.change_feed import DeviceRow, NodeRow
from services.scheduler.ledger.rows.node_rows import NodeStatus
from services.scheduler.observations.latest_readings import LatestReadings
from services.scheduler.observations.release_snapshots import ReleaseSnapshots
from shared.postgres.database import Connection


@dataclass(slots=True)
class FleetReader:
    """Reads the fleet, and requests readings of devices that were released since their last one.

    The fleet is complete when nothing that is still to be reported could serve a request: an empty
    fleet `grace_seconds` after the start, a node without an inventory as long after it was first
    seen.
    """

    readings: LatestReadings
    snapshots: ReleaseSnapshots
    grace_seconds: float
    quiet_seconds: float = 60.0
    system_processes: frozenset[str] = frozenset()
    idle_memory_mb: int = 300
    clock: Callable[[], float] = time.monotonic
    _started_at_seconds: float = field(default_factory=time.monotonic)

    async def read(self, connection: Connection) -> Fleet:
        rows = await change_feed.read_devices(connection)
        nodes = await change_feed.read_nodes(connection)
        self.snapshots.request(rows)
        await self.snapshots.wait()
        return Fleet.of(
            map(self.device, rows),
            complete=self.is_complete(map(self.complete_at, nodes), has_devices=bool(rows)),
        )

    def complete_at(self, node: NodeRow) -> float:
        """Return the monotonic time at which a node's inventory is waited for no longer."""
        if node.inventoried:
            return -math.inf
        return self.clock() + self.grace_seconds - node.known_seconds

    def is_complete(self, complete_at: Iterable[float], *, has_devices: bool) -> bool:
        """Return True if what cannot fit on these nodes now never will."""
        now = self.clock()
        if not has_devices and now - self._started_at_seconds < self.grace_seconds:
            return False
        return all(at <= now for at in complete_at)

    def cordon(self, row: DeviceRow | NodeStatus) -> CordonState | None:
        """Return why a device or a node is out of service; None if it is in service."""
        if not row.cordoned:
            return None
        return cordon_state(
            row.cordon_cause,
            reason=row.cordon_reason,
            set_by=row.cordon_set_by,
            since_at=row.cordoned_at,
            quiet_since=row.quiet_since,
            quiet_seconds=self.quiet_seconds,
        )

    def device(self, row: DeviceRow) -> Device:
        state, reading = self.readings.find(row.node_id, row.uuid, row.releases)
        is_fresh = state is ReadingState.FRESH  # or it may show what the last holder has ended
        processes = self.readings.processes(row.node_id, row.uuid) if is_fresh else None
        holders = {part.holder for part in row.parts}
        if row.reservation_id is not None:
            holders.add(row.reservation_id)
        if reading is not None and reading.utilization_percent is None:
            # Drivers report none of a MIG instance; without a process there is none.
            is_idle = row.parent_uuid is not None and processes == ()
            reading = replace(reading, utilization_percent=0.0) if is_idle else reading
        foreign = foreign_processes(processes, holders, self.system_processes)
        unlisted_mb = None
        if is_fresh and not holders and not row.simulated:
            in_use_mb = sum_used_mb(reading, row.memory_total_mb)
            unlisted_mb = measure_unlisted_mb(processes, in_use_mb, self.idle_memory_mb)
        return Device(
            number=row.device_no,
            node_id=row.node_id,
            uuid=row.uuid,
            index=row.index,
            name=row.name,
            memory_total_mb=row.memory_total_mb,
            simulated=row.simulated,
            health=row.health,
            health_detail=row.health_detail,
            cordoned=row.cordoned,
            cordon=self.cordon(row),
            holder=row.reservation_id,
            quarantined=row.quarantined,
            reading_state=state,
            reading=None if row.parts else reading,  # the use of those that share it
            parts=row.parts,
            compute_capability=row.compute_capability,
            numa_node=row.numa_node,
            link_groups=row.link_groups,
            mig_enabled=row.mig_enabled,
            parent_uuid=row.parent_uuid,
            mig_profile=row.mig_profile,
            mig_layout=row.mig_layout,
            foreign_pids=tuple(process.pid for process in foreign),
            unlisted_mb=unlisted_mb,
        )
