"""What nodes tell of themselves, kept in the ledger: devices, health, the epochs they have seen."""

from dataclasses import dataclass
from typing import Final

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
from services.scheduler.readings import Readings
from shared.database import Connection, Database, to_json

BOOTS_REMEMBERED: Final = 16

_HEALTH: Final = {
    HealthKind.GPU_LOST: HealthState.LOST,
    HealthKind.GPU_RECOVERED: HealthState.OK,
    HealthKind.PROBE_HUNG: HealthState.HUNG,
    HealthKind.PROBE_RECOVERED: HealthState.OK,
}

_TAKE_INVENTORY: Final = f"""
UPDATE node SET boot_id = $2, inventory_revision = $3, source = $4, labels = $5, host = $6,
    inventory_at = clock_timestamp(),
    health_revision = CASE WHEN boot_id = $2 THEN health_revision ELSE -1 END,
    past_boot_ids = CASE WHEN boot_id IS NULL OR boot_id = $2 THEN past_boot_ids
        ELSE (ARRAY[boot_id] || past_boot_ids)[1:{BOOTS_REMEMBERED}] END
WHERE node_id = $1 AND NOT ($2 = ANY(past_boot_ids))
    AND (boot_id IS DISTINCT FROM $2 OR inventory_revision < $3)
RETURNING cordoned
"""

_UPSERT_DEVICE: Final = """
INSERT INTO device
    (node_id, uuid, index, name, memory_total_mb, simulated, health, health_detail, cordoned)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (node_id, uuid) DO UPDATE SET index = excluded.index, name = excluded.name,
    memory_total_mb = coalesce(excluded.memory_total_mb, device.memory_total_mb),
    simulated = excluded.simulated, health = excluded.health,
    health_detail = excluded.health_detail
"""


@dataclass(frozen=True, slots=True)
class NodeReports:
    """Consumers of what nodes report; seen twice or late, a report changes nothing."""

    database: Database
    readings: Readings
    decider: Decider

    async def record_inventory(self, event: InventoryReported) -> None:
        """Take the node's devices as they are; one that is missing is lost, its holdings stay."""
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
            if row is None:
                return
            for device in sorted(event.devices, key=lambda d: d.uuid):
                await _upsert(connection, event.node_id, device, cordoned=row["cordoned"])
            await connection.execute(
                "UPDATE device SET health = 'lost', health_detail = 'not in the inventory'"
                " WHERE node_id = $1 AND NOT (uuid = ANY($2))",
                event.node_id,
                [device.uuid for device in event.devices],
            )
        self.decider.wake()

    async def record_health(self, event: HealthChanged) -> None:
        """Take a device out of the choice at once; the inventory that follows has the details."""
        async with self.database.transaction() as connection:
            newer = await connection.fetchval(
                "UPDATE node SET health_revision = $3 WHERE node_id = $1 AND boot_id = $2"
                " AND health_revision < $3 RETURNING true",
                event.node_id,
                event.boot_id,
                event.revision,
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
        if newer and event.change is HealthKind.AGENT_STOPPED:
            self.readings.forget(event.node_id)
        self.decider.wake()

    async def record_executor(self, event: ExecutorReported) -> None:
        """Keep epochs above every one that a node has seen, whatever backup this ledger is from."""
        async with self.database.transaction() as connection:
            await _know(connection, event.executor_id)
            await connection.execute(
                "UPDATE node SET executor_seen_at = clock_timestamp() WHERE node_id = $1",
                event.executor_id,
            )
            await store.raise_epoch(connection, event.largest_epoch)


async def _know(connection: Connection, node_id: NodeId) -> None:
    await connection.execute(
        "INSERT INTO node (node_id) VALUES ($1) ON CONFLICT DO NOTHING", node_id
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
        cordoned,
    )
