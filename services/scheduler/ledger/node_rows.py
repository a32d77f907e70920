"""Rows of nodes and their devices: functions on a connection, inside the caller's transaction."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import DeviceUuid, NodeId
from schemas.errors import ErrorCode
from schemas.telemetry import DeviceFacts, HealthState, InventoryReported, Source
from services.scheduler.domain.faults import Fault
from services.scheduler.ledger.holding_rows import OpenHolding
from shared.errors import RefusedError
from shared.postgres.database import Connection, to_json

BOOTS_REMEMBERED: Final = 16
FAULT_DAYS: Final = 14  # for those of earlier boots of an agent; the stream repeats 7 days

_ADD: Final = "INSERT INTO node (node_id) VALUES ($1) ON CONFLICT DO NOTHING"
_LOCK: Final = "SELECT 1 FROM node WHERE node_id = $1 FOR UPDATE"
_STATUS: Final = """
SELECT node_id, source, executor_seen_at IS NOT NULL AS has_executor, stopped, lost FROM node
ORDER BY node_id
"""
_EXISTS: Final = "SELECT 1 FROM node WHERE node_id = $1"
_DEVICES: Final = "SELECT node_id, uuid, name, releases, mig_enabled FROM device"
_UUIDS: Final = "SELECT uuid FROM device WHERE node_id = $1"
_NEXT_REVISION: Final = """
UPDATE node SET event_revision = event_revision + 1 WHERE node_id = $1 RETURNING event_revision
"""
# Applied once: not from an earlier boot, and of one boot only what is newer.
_INVENTORY: Final = f"""
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
_LOSE_OTHERS: Final = """
UPDATE device SET health = 'lost', health_detail = 'not in the inventory'
WHERE node_id = $1 AND NOT (uuid = ANY($2))
"""
_HEALTH_REVISION: Final = """
UPDATE node SET health_revision = $3, stopped = $4
WHERE node_id = $1 AND boot_id = $2 AND health_revision < $3 RETURNING true
"""
_HEALTH: Final = """
UPDATE device SET health = $3, health_detail = nullif($4, '')
WHERE node_id = $1 AND ($2::text IS NULL OR uuid = $2)
"""
_EXECUTOR_SEEN: Final = """
UPDATE node SET executor_seen_at = clock_timestamp() WHERE node_id = $1
"""
_IS_LOST: Final = "SELECT lost FROM node WHERE node_id = $1"
_LOSE: Final = "UPDATE node SET lost = true WHERE node_id = $1"
_CORDON_NODE: Final = "UPDATE node SET cordoned = $2 WHERE node_id = $1"
_CORDON_DEVICES: Final = """
UPDATE device SET cordoned = $3, cordon_reason = $4
WHERE node_id = $1 AND ($2::text IS NULL OR uuid = $2)
    AND (cordoned <> $3 OR ($3 AND $4 <> '' AND cordon_reason <> $4))
RETURNING device_no, node_id, uuid, false AS quarantined
"""
_HANDLED_FAULTS: Final = "SELECT event_id FROM fault WHERE node_id = $1 AND event_id = ANY($2)"
_ADD_FAULT: Final = """
INSERT INTO fault (node_id, event_id, boot_id, device_uuid, reason) VALUES ($1, $2, $3, $4, $5)
"""
_DELETE_FAULTS: Final = """
DELETE FROM fault WHERE node_id = $1 AND boot_id <> $2
    AND handled_at < clock_timestamp() - $3 * interval '1 day'
"""


class NodeStatus(Struct, frozen=True, kw_only=True):
    """`source` is where its readings come from. `stopped`: its agent has said that it stops.
    `lost`: silent for so long that what it held has ended.
    """

    node_id: NodeId
    source: Source
    has_executor: bool
    stopped: bool
    lost: bool


class KnownDevice(Struct, frozen=True, kw_only=True):
    """A device as its node has reported it; `releases` counts its confirmed releases."""

    node_id: NodeId
    uuid: DeviceUuid
    name: str
    releases: int
    mig_enabled: bool | None


async def statuses(connection: Connection) -> list[NodeStatus]:
    """Every node, in order."""
    rows = await connection.fetch(_STATUS)
    return [NodeStatus(**dict(row) | {"source": Source(row["source"])}) for row in rows]


async def devices(connection: Connection) -> list[KnownDevice]:
    return [KnownDevice(**dict(row)) for row in await connection.fetch(_DEVICES)]


async def device_uuids(connection: Connection, node_id: NodeId) -> set[DeviceUuid]:
    """The devices of a node, lost ones too."""
    return {row["uuid"] for row in await connection.fetch(_UUIDS, node_id)}


async def check_known(
    connection: Connection, node_id: NodeId, device_uuid: DeviceUuid | None = None
) -> None:
    """Raises RefusedError for a node that never reported, or a device that it does not have."""
    if not await connection.fetchval(_EXISTS, node_id):
        raise RefusedError(ErrorCode.NOT_FOUND, f"no node {node_id}", path="$.node_id")
    if device_uuid is not None and device_uuid not in await device_uuids(connection, node_id):
        raise RefusedError(
            ErrorCode.NOT_FOUND, f"no device {device_uuid} on {node_id}", path="$.device_uuid"
        )


async def next_revision(connection: Connection, node_id: NodeId) -> int:
    """The revision of a node's next device event; locks the node's row."""
    return int(await connection.fetchval(_NEXT_REVISION, node_id))


async def write_inventory(connection: Connection, event: InventoryReported) -> None:
    """Store a node's devices as reported, unless that is old; one that is missing is lost."""
    await connection.execute(_ADD, event.node_id)
    row = await connection.fetchrow(
        _INVENTORY,
        event.node_id,
        event.boot_id,
        event.revision,
        event.source.value,
        to_json(event.labels),
        to_json(event.host),
    )
    if row is None:
        return
    for device in sorted(event.devices, key=lambda each: each.uuid):
        await _upsert(connection, event.node_id, device, cordoned=row["cordoned"])
    await connection.execute(_LOSE_OTHERS, event.node_id, [device.uuid for device in event.devices])
    await connection.execute(_DELETE_FAULTS, event.node_id, event.boot_id, FAULT_DAYS)


async def write_health_revision(
    connection: Connection, node_id: NodeId, boot_id: UUID, revision: int, *, stopped: bool
) -> bool:
    """Store the revision of a health change; False if it is not newer than the last."""
    return bool(await connection.fetchval(_HEALTH_REVISION, node_id, boot_id, revision, stopped))


async def write_health(
    connection: Connection,
    node_id: NodeId,
    device_uuid: DeviceUuid | None,
    health: HealthState,
    detail: str,
) -> None:
    """Store the health of a device; None: of all of the node's."""
    await connection.execute(_HEALTH, node_id, device_uuid, health.value, detail)


async def write_executor_seen(connection: Connection, node_id: NodeId) -> None:
    await connection.execute(_ADD, node_id)
    await connection.execute(_EXECUTOR_SEEN, node_id)


async def is_lost(connection: Connection, node_id: NodeId) -> bool:
    """Whether the node's silence has been acted on and lasts."""
    return bool(await connection.fetchval(_IS_LOST, node_id))


async def write_lost(connection: Connection, node_id: NodeId) -> None:
    """Store that a node's silence was acted on; its next inventory ends that."""
    await connection.execute(_LOSE, node_id)


async def write_cordon(
    connection: Connection,
    node_id: NodeId,
    device_uuid: DeviceUuid | None,
    *,
    cordoned: bool,
    reason: str = "",
) -> list[OpenHolding]:
    """Take a device, or a whole node, out of service or back.

    Returns those that were not so before, or were out for another reason than the one now given.
    """
    await connection.execute(_LOCK, node_id)
    if device_uuid is None:
        await connection.execute(_CORDON_NODE, node_id, cordoned)
    rows = await connection.fetch(_CORDON_DEVICES, node_id, device_uuid, cordoned, reason)
    return sorted((OpenHolding(**dict(row)) for row in rows), key=lambda one: one.device_no)


async def handled_faults(
    connection: Connection, node_id: NodeId, event_ids: Iterable[UUID]
) -> set[UUID]:
    """Those of these faults that were acted on."""
    rows = await connection.fetch(_HANDLED_FAULTS, node_id, list(event_ids))
    return {row["event_id"] for row in rows}


async def add_fault(connection: Connection, node_id: NodeId, boot_id: UUID, fault: Fault) -> None:
    await connection.execute(
        _ADD_FAULT, node_id, fault.event_id, boot_id, fault.device_uuid, fault.reason
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
