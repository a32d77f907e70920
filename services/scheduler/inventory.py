"""What nodes tell of themselves, kept in the ledger: devices, health, the epochs they have seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from schemas.base import NodeId
from schemas.executor import ExecutorReported
from schemas.telemetry import (
    DeviceFacts,
    HealthChanged,
    HealthKind,
    HealthState,
    InventoryReported,
)
from services.scheduler import store
from services.scheduler.decider import Decider
from services.scheduler.domain.faults import Fault, fault_of_event, faults_of_inventory
from services.scheduler.losses import handle_faults
from services.scheduler.readings import Readings
from shared.database import Connection, Database, to_json
from shared.errors import PermanentError

BOOTS_REMEMBERED: Final = 16
LARGEST_EPOCH: Final = 2**62  # leaves room for more grants than there will be
FAULTS_KEPT_DAYS: Final = 14  # of earlier boots of an agent; the stream repeats 7 days

_HEALTH: Final = {
    HealthKind.GPU_LOST: HealthState.LOST,
    HealthKind.GPU_RECOVERED: HealthState.OK,
    HealthKind.PROBE_HUNG: HealthState.HUNG,
    HealthKind.PROBE_RECOVERED: HealthState.OK,
}

_TAKE_INVENTORY: Final = f"""
UPDATE node SET boot_id = $2, inventory_revision = $3, source = $4, labels = $5, host = $6,
    inventory_at = clock_timestamp(), lost = false,
    stopped = stopped AND boot_id = $2 AND health_revision > $3,
    health_revision = CASE WHEN boot_id = $2 THEN health_revision ELSE -1 END,
    past_boot_ids = CASE WHEN boot_id IS NULL OR boot_id = $2 THEN past_boot_ids
        ELSE (ARRAY[boot_id] || past_boot_ids)[1:{BOOTS_REMEMBERED}] END
WHERE node_id = $1 AND NOT ($2 = ANY(past_boot_ids))
    AND (boot_id IS DISTINCT FROM $2 OR inventory_revision < $3)
RETURNING cordoned
"""

_UPSERT_DEVICE: Final = """
INSERT INTO device
    (node_id, uuid, index, name, memory_total_mb, simulated, health, health_detail,
    compute_capability, numa_node, mig_enabled, parent_uuid, cordoned, cordon_reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
    CASE WHEN $13 THEN 'its node is cordoned' ELSE '' END)
ON CONFLICT (node_id, uuid) DO UPDATE SET index = excluded.index, name = excluded.name,
    memory_total_mb = coalesce(excluded.memory_total_mb, device.memory_total_mb),
    simulated = excluded.simulated, health = excluded.health,
    health_detail = excluded.health_detail,
    compute_capability = coalesce(excluded.compute_capability, device.compute_capability),
    numa_node = coalesce(excluded.numa_node, device.numa_node),
    mig_enabled = excluded.mig_enabled, parent_uuid = excluded.parent_uuid
"""


@dataclass(frozen=True, slots=True)
class NodeReports:
    """Consumers of what nodes report; seen twice or late, a report changes nothing."""

    database: Database
    readings: Readings
    decider: Decider

    async def record_inventory(self, event: InventoryReported) -> None:
        """Take the node's devices as they are; one that is missing is lost, its holdings stay.

        The faults that it repeats are acted on if their events were missed.
        """
        async with self.database.transaction() as connection:
            await _know(connection, event.node_id)
            row = await connection.fetchrow(
                _TAKE_INVENTORY,
                event.node_id,
                event.boot_id,
                event.revision,
                event.source.value,
                to_json(event.labels),
                to_json(event.host),
            )
            if row is not None:
                await _take_devices(connection, event, cordoned=row["cordoned"])
        # Also of an inventory that came before: the process may have ended between the two.
        await self._act_on(event.node_id, event.boot_id, faults_of_inventory(event))
        self.decider.wake()

    async def record_health(self, event: HealthChanged) -> None:
        """Take a device out of the choice at once; the inventory that follows has the details.

        A fault that demands a drain or a reset cordons, and what lives there is lost.
        """
        async with self.database.transaction() as connection:
            newer = await connection.fetchval(
                "UPDATE node SET health_revision = $3, stopped = $4 WHERE node_id = $1"
                " AND boot_id = $2 AND health_revision < $3 RETURNING true",
                event.node_id,
                event.boot_id,
                event.revision,
                event.change is HealthKind.AGENT_STOPPED,
            )
            if newer and event.change in _HEALTH:
                await connection.execute(
                    "UPDATE device SET health = $3, health_detail = nullif($4, '')"
                    " WHERE node_id = $1 AND ($2::text IS NULL OR uuid = $2)",
                    event.node_id,
                    event.device_uuid,
                    _HEALTH[event.change].value,
                    event.detail,
                )
        fault = fault_of_event(event)
        await self._act_on(event.node_id, event.boot_id, (fault,) if fault is not None else ())
        if newer and event.change is HealthKind.AGENT_STOPPED:
            self.readings.forget(event.node_id)
        self.decider.wake()

    async def record_executor(self, event: ExecutorReported) -> None:
        """Keep epochs above every one that a node has seen, whatever backup this ledger is from.

        Raises PermanentError for one behind which there is no other.
        """
        if event.largest_epoch > LARGEST_EPOCH:
            raise PermanentError(f"expected an epoch up to {LARGEST_EPOCH}, got a larger one")
        async with self.database.transaction() as connection:
            await _know(connection, event.executor_id)
            await connection.execute(
                "UPDATE node SET executor_seen_at = clock_timestamp() WHERE node_id = $1",
                event.executor_id,
            )
            await store.raise_epoch(connection, event.largest_epoch)

    async def _act_on(self, node_id: NodeId, boot_id: UUID, faults: Sequence[Fault]) -> None:
        if faults:
            async with self.database.transaction() as connection:
                await handle_faults(connection, node_id, boot_id, faults)


async def _know(connection: Connection, node_id: NodeId) -> None:
    await connection.execute(
        "INSERT INTO node (node_id) VALUES ($1) ON CONFLICT DO NOTHING", node_id
    )


async def _take_devices(
    connection: Connection, event: InventoryReported, *, cordoned: bool
) -> None:
    for device in sorted(event.devices, key=lambda d: d.uuid):
        await _upsert(connection, event.node_id, device, cordoned=cordoned)
    await connection.execute(
        "UPDATE device SET health = 'lost', health_detail = 'not in the inventory'"
        " WHERE node_id = $1 AND NOT (uuid = ANY($2))",
        event.node_id,
        [device.uuid for device in event.devices],
    )
    await connection.execute(
        "DELETE FROM fault WHERE node_id = $1 AND boot_id <> $2"
        " AND handled_at < clock_timestamp() - $3 * interval '1 day'",
        event.node_id,
        event.boot_id,
        FAULTS_KEPT_DAYS,
    )


async def _upsert(
    connection: Connection, node_id: NodeId, device: DeviceFacts, *, cordoned: bool
) -> None:
    await connection.execute(
        _UPSERT_DEVICE,
        node_id,
        device.uuid,
        device.index,
        device.name,
        device.memory_total_mb,
        device.simulated,
        device.health.value,
        device.health_detail,
        device.compute_capability,
        device.numa_node,
        device.mig_enabled,
        device.parent_uuid,
        cordoned,
    )
