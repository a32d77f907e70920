"""What nodes report, written to the ledger: devices, health, the epochs they have seen."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from schemas.base import NodeId
from schemas.executor.attempts import ExecutorReported
from schemas.scheduler.devices import DeviceCordoned, DeviceUncordoned
from schemas.telemetry.readings import HealthChanged, HealthKind, HealthState, InventoryReported
from services.scheduler.domain.faults import Fault, fault_of_event, faults_of_inventory
from services.scheduler.ledger.out_of_service import handle_faults
from services.scheduler.ledger.rows import cluster_rows, mig_rows, node_rows, reservation_rows
from services.scheduler.ledger.transitions import stage_device_events
from services.scheduler.observations.latest_readings import LatestReadings
from shared.errors import PermanentError
from shared.postgres.database import Database

MAX_EPOCH: Final = 2**62  # leaves room for more grants than there will be

_HEALTH: Final = {
    HealthKind.GPU_LOST: HealthState.LOST,
    HealthKind.GPU_RECOVERED: HealthState.OK,
    HealthKind.PROBE_HUNG: HealthState.HUNG,
    HealthKind.PROBE_RECOVERED: HealthState.OK,
}


@dataclass(frozen=True, slots=True)
class NodeReports:
    """Consumers of what nodes report; received twice or late, a report changes nothing.

    A new node that `admits` does not let in waits for an operator.
    """

    database: Database
    readings: LatestReadings
    admits: Callable[[NodeId], bool]

    async def record_inventory(self, event: InventoryReported) -> None:
        """Store the node's devices as reported; one that is missing is lost, its holdings stay.

        The faults that it repeats are acted on if their events were missed.
        """
        async with self.database.transaction() as connection:
            admits = self.admits(event.node_id)
            cordoned = await node_rows.write_inventory(connection, event, admits=admits)
            reason = "its node is cordoned"
            await stage_device_events(connection, DeviceCordoned, cordoned, None, reason)
            uncordoned = await mig_rows.finish(connection, event)
            reason = "its GPU is divided as before"
            await stage_device_events(connection, DeviceUncordoned, uncordoned, None, reason)
        # Also of an inventory that came before: the process may have ended between the two.
        await self._act_on(event.node_id, event.boot_id, faults_of_inventory(event))

    async def record_health(self, event: HealthChanged) -> None:
        """Take a device out of the choice at once; the inventory that follows has the details.

        A fault that demands a drain or a reset cordons, and what lives there is lost.
        """
        is_stopped = event.change is HealthKind.AGENT_STOPPED
        async with self.database.transaction() as connection:
            newer = await node_rows.write_health_revision(
                connection, event.node_id, event.boot_id, event.revision, stopped=is_stopped
            )
            if newer and event.change in _HEALTH:
                health = _HEALTH[event.change]
                await node_rows.write_health(
                    connection, event.node_id, event.device_uuid, health, event.detail
                )
            if newer and is_stopped:
                # Before the commit, which wakes the decision loop.
                self.readings.forget(event.node_id)
        fault = fault_of_event(event)
        await self._act_on(event.node_id, event.boot_id, (fault,) if fault is not None else ())

    async def record_executor(self, event: ExecutorReported) -> None:
        """Draw epochs above every one that a node has seen, whatever backup this ledger is from.

        Raises PermanentError for one behind which there is no other.
        """
        if event.largest_epoch > MAX_EPOCH:
            raise PermanentError(f"expected an epoch up to {MAX_EPOCH}, got a larger one")
        async with self.database.transaction() as connection:
            await node_rows.write_executor_seen(connection, event.executor_id)
            await reservation_rows.raise_epoch(connection, event.largest_epoch)

    async def record_cluster(self, cluster_id: NodeId) -> None:
        """A cluster that reports its nodes is a node itself."""
        async with self.database.transaction() as connection:
            admits = self.admits(cluster_id)
            await cluster_rows.register(connection, cluster_id, admits=admits)

    async def clusters(self) -> Iterable[NodeId]:
        """Return the clusters on record."""
        async with self.database.transaction() as connection:
            return await cluster_rows.statuses(connection)

    async def _act_on(self, node_id: NodeId, boot_id: UUID, faults: Sequence[Fault]) -> None:
        if faults:
            async with self.database.transaction() as connection:
                await handle_faults(connection, node_id, boot_id, faults)
