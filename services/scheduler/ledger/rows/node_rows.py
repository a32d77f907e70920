"""Rows of nodes and their devices."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import DeviceUuid, NodeId
from schemas.errors import ErrorCode
from schemas.scheduler.devices import LOSSES, CordonCause
from schemas.telemetry.readings import DeviceFacts, HealthState, InventoryReported, Source
from services.scheduler.domain.faults import Fault
from services.scheduler.domain.labels import CLUSTER_LABEL
from services.scheduler.domain.placement.topology import link_groups
from services.scheduler.ledger.lock_order import lock_nodes
from services.scheduler.ledger.rows.holding_rows import OpenHolding, by_number
from services.scheduler.ledger.rows.label_rows import LABELS_REPORTED, no_such_node
from shared.errors import RefusedError
from shared.postgres.database import Connection, to_json

BOOTS_REMEMBERED: Final = 16
_LOSS_CAUSES: Final = sorted(cause.value for cause in LOSSES)
FAULT_DAYS: Final = 14  # for those of earlier boots of an agent; the stream repeats 7 days

_ADD: Final = "INSERT INTO node (node_id) VALUES ($1) ON CONFLICT DO NOTHING"
_STATUS: Final = """
SELECT node_id, source, executor_seen_at IS NOT NULL AS has_executor, stopped, lost, admitted,
    cordoned, cordon_cause, cordon_reason, cordon_set_by, cordoned_at, quiet_since,
    coalesce(operator_labels -> $1, labels -> $1, 'null') <> 'null' AS is_in_cluster
FROM node WHERE NOT removed ORDER BY node_id
"""
_EXISTS: Final = "SELECT 1 FROM node WHERE node_id = $1 AND NOT removed"
_DEVICES: Final = "SELECT node_id, uuid, name, releases, mig_enabled FROM device WHERE NOT removed"
_UUIDS: Final = "SELECT uuid FROM device WHERE node_id = $1 AND NOT removed"
_NEXT_REVISION: Final = """
UPDATE node SET event_revision = event_revision + 1 WHERE node_id = $1 RETURNING event_revision
"""
# Applied once: not from an earlier boot, and of one boot only what is newer.
_INVENTORY: Final = f"""
UPDATE node SET boot_id = $2, inventory_revision = $3, source = $4, host = $6,
    labels = {LABELS_REPORTED.format("$5")},
    inventory_at = clock_timestamp(), lost = false, removed = false, admitted = admitted OR $7,
    stopped = stopped AND boot_id = $2 AND health_revision > $3,
    health_revision = CASE WHEN boot_id = $2 THEN health_revision ELSE -1 END,
    past_boot_ids = CASE WHEN boot_id IS NULL OR boot_id = $2 THEN past_boot_ids
        ELSE (ARRAY[boot_id] || past_boot_ids)[1:{BOOTS_REMEMBERED}] END
WHERE node_id = $1 AND NOT ($2 = ANY(past_boot_ids))
    AND (boot_id IS DISTINCT FROM $2 OR inventory_revision < $3)
RETURNING true
"""
_UPSERT_DEVICE: Final = """
INSERT INTO device
    (node_id, uuid, index, name, memory_total_mb, simulated, health, health_detail,
    compute_capability, numa_node, mig_enabled, parent_uuid, mig_profile,
    link_groups, mig_layout, cordoned, cordon_cause, cordon_reason, cordon_set_by, cordoned_at)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
    cordoned, cordon_cause, cordon_reason, cordon_set_by, cordoned_at
FROM node WHERE node_id = $1
ON CONFLICT (node_id, uuid) DO UPDATE SET index = excluded.index, name = excluded.name,
    memory_total_mb = coalesce(excluded.memory_total_mb, device.memory_total_mb),
    simulated = excluded.simulated, health = excluded.health,
    health_detail = excluded.health_detail,
    compute_capability = coalesce(excluded.compute_capability, device.compute_capability),
    numa_node = coalesce(excluded.numa_node, device.numa_node),
    mig_enabled = excluded.mig_enabled, parent_uuid = excluded.parent_uuid,
    mig_profile = excluded.mig_profile, link_groups = excluded.link_groups,
    mig_layout = excluded.mig_layout, removed = false
RETURNING device_no, node_id, uuid, false AS quarantined, xmax = 0 AND cordoned AS is_new_cordoned
"""
_LOSE_OTHERS: Final = """
UPDATE device SET health = 'lost', health_detail = 'not in the inventory', link_groups = '{}'
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
UPDATE node SET executor_seen_at = clock_timestamp(), removed = false WHERE node_id = $1
"""
_ADMIT: Final = "UPDATE node SET admitted = true WHERE node_id = $1"
_IS_LOST: Final = "SELECT lost FROM node WHERE node_id = $1"
_HAS_STOPPED: Final = "SELECT stopped FROM node WHERE node_id = $1"
_LOSE: Final = "UPDATE node SET lost = true WHERE node_id = $1"
# A cordon for a loss, which lifts itself, replaces none that has to be lifted, nor a restore's.
_CORDON: Final = """
SET cordoned = true, cordon_cause = $2, cordon_reason = $3, cordon_set_by = $4,
    cordoned_at = clock_timestamp(), quiet_since = NULL
WHERE node_id = $1 AND (NOT cordoned
    OR (cordon_cause = ANY($5 || '{restored}'::text[]) AND $2 <> ALL($5))
    OR ($3 <> '' AND $3 <> cordon_reason AND ($2 <> ALL($5) OR cordon_cause = ANY($5))))
"""
_CORDON_NODE: Final = f"UPDATE node {_CORDON}"
_CORDON_DEVICES: Final = f"""
UPDATE device {_CORDON} AND ($6::text IS NULL OR uuid = $6)
RETURNING device_no, node_id, uuid, false AS quarantined
"""
_BREAK_QUIET: Final = """
UPDATE device SET quiet_since = NULL
WHERE node_id = $1 AND ($2::text IS NULL OR uuid = $2) AND quiet_since IS NOT NULL
"""
IN_SERVICE: Final = """
SET cordoned = false, cordon_cause = 'operator', cordon_reason = '', cordon_set_by = '',
    cordoned_at = NULL, quiet_since = NULL
"""
_UNCORDON_NODE: Final = f"UPDATE node {IN_SERVICE} WHERE node_id = $1"
_UNCORDON_DEVICES: Final = f"""
UPDATE device {IN_SERVICE} WHERE node_id = $1 AND ($2::text IS NULL OR uuid = $2) AND cordoned
    AND cordon_cause <> 'mig'
RETURNING device_no, node_id, uuid, false AS quarantined
"""
# What identifies a report stays, so that one from before changes nothing.
_REMOVE_NODE: Final = f"""
UPDATE node {IN_SERVICE}, removed = true, admitted = false, lost = false, stopped = false,
    source = 'none', labels = '{{}}', operator_labels = '{{}}', host = NULL, inventory_at = NULL,
    executor_seen_at = NULL
WHERE node_id = $1
"""
_REMOVE_DEVICES: Final = f"UPDATE device {IN_SERVICE}, removed = true WHERE node_id = $1"
_HANDLED_FAULTS: Final = "SELECT event_id FROM fault WHERE node_id = $1 AND event_id = ANY($2)"
_ADD_FAULT: Final = """
INSERT INTO fault (node_id, event_id, boot_id, device_uuid, reason) VALUES ($1, $2, $3, $4, $5)
"""
_DELETE_FAULTS: Final = """
DELETE FROM fault WHERE node_id = $1 AND boot_id <> $2
    AND handled_at < clock_timestamp() - $3 * interval '1 day'
"""


class NodeStatus(Struct, frozen=True, kw_only=True):
    """`source` is where its readings come from. `stopped`: its agent has reported that it stops.
    `lost`: silent for so long that what it held has ended. `quiet_since`: well since its loss.
    Nothing is granted on one that is not `admitted`, or whose GPUs a cluster gives out.
    """

    node_id: NodeId
    source: Source
    has_executor: bool
    stopped: bool
    lost: bool
    admitted: bool
    cordoned: bool
    cordon_cause: CordonCause
    cordon_reason: str
    cordon_set_by: str
    cordoned_at: datetime | None
    quiet_since: datetime | None
    is_in_cluster: bool = False


class KnownDevice(Struct, frozen=True, kw_only=True):
    """A device as its node has reported it; `releases` counts its confirmed releases."""

    node_id: NodeId
    uuid: DeviceUuid
    name: str
    releases: int
    mig_enabled: bool | None


async def statuses(connection: Connection) -> list[NodeStatus]:
    """Return every node's status, in order."""
    rows = await connection.fetch(_STATUS, CLUSTER_LABEL)
    return [
        NodeStatus(
            **dict(row)
            | {"source": Source(row["source"]), "cordon_cause": CordonCause(row["cordon_cause"])}
        )
        for row in rows
    ]


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
        raise await no_such_node(connection, node_id)
    if device_uuid is not None and device_uuid not in await device_uuids(connection, node_id):
        raise RefusedError(
            ErrorCode.NOT_FOUND, f"no device {device_uuid} on {node_id}", path="$.device_uuid"
        )


async def next_revision(connection: Connection, node_id: NodeId) -> int:
    """The revision of a node's next device event; locks the node's row."""
    return int(await connection.fetchval(_NEXT_REVISION, node_id))


async def write_inventory(
    connection: Connection, event: InventoryReported, admits: bool
) -> list[OpenHolding]:
    """Store a node's devices, unless that is old; those that are new, and cordoned as it is."""
    await connection.execute(_ADD, event.node_id)
    await lock_nodes(connection, [event.node_id])
    is_newer = await connection.fetchval(
        _INVENTORY,
        event.node_id,
        event.boot_id,
        event.revision,
        event.source.value,
        to_json(event.labels),
        to_json(event.host),
        admits,
    )
    if not is_newer:
        return []
    ordered = sorted(event.devices, key=lambda facts: facts.uuid)
    groups = link_groups(event.devices, event.links)
    rows = [
        await _upsert(connection, event.node_id, device, groups.get(device.uuid, ()))
        for device in ordered
    ]
    await connection.execute(_LOSE_OTHERS, event.node_id, [device.uuid for device in event.devices])
    await connection.execute(_DELETE_FAULTS, event.node_id, event.boot_id, FAULT_DAYS)
    return [holding for holding, is_new_cordoned in rows if is_new_cordoned]


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
    await lock_nodes(connection, [node_id])
    await connection.execute(_HEALTH, node_id, device_uuid, health.value, detail)


async def write_executor_seen(connection: Connection, node_id: NodeId) -> None:
    await connection.execute(_ADD, node_id)
    await connection.execute(_EXECUTOR_SEEN, node_id)


async def write_admitted(connection: Connection, node_id: NodeId) -> None:
    await connection.execute(_ADMIT, node_id)


async def is_lost(connection: Connection, node_id: NodeId) -> bool:
    """Return True if the node's silence has been acted on and lasts."""
    return bool(await connection.fetchval(_IS_LOST, node_id))


async def has_stopped(connection: Connection, node_id: NodeId) -> bool:
    """Return True if its agent has reported that it stops."""
    return bool(await connection.fetchval(_HAS_STOPPED, node_id))


async def write_lost(connection: Connection, node_id: NodeId) -> None:
    """Store that a node's silence was acted on; its next inventory ends that."""
    await connection.execute(_LOSE, node_id)


async def write_cordon(
    connection: Connection,
    node_id: NodeId,
    device_uuid: DeviceUuid | None,
    cause: CordonCause,
    reason: str,
    set_by: str = "",
) -> list[OpenHolding]:
    """Take a device, or a whole node, out of service; the devices for which anything changed."""
    await lock_nodes(connection, [node_id])
    values = (node_id, cause.value, reason, set_by, _LOSS_CAUSES)
    if device_uuid is None:
        await connection.execute(_CORDON_NODE, *values)
    rows = await connection.fetch(_CORDON_DEVICES, *values, device_uuid)
    await connection.execute(_BREAK_QUIET, node_id, device_uuid)
    return by_number(rows)


async def write_uncordon(
    connection: Connection, node_id: NodeId, device_uuid: DeviceUuid | None
) -> list[OpenHolding]:
    """Take a device, or a whole node, back into service; the devices that were out of it."""
    await lock_nodes(connection, [node_id])
    if device_uuid is None:
        await connection.execute(_UNCORDON_NODE, node_id)
    return by_number(await connection.fetch(_UNCORDON_DEVICES, node_id, device_uuid))


async def remove(connection: Connection, node_id: NodeId) -> None:
    """Forget a node and its devices until it reports again; nothing of it is held."""
    await lock_nodes(connection, [node_id])
    await connection.execute(_REMOVE_NODE, node_id)
    await connection.execute(_REMOVE_DEVICES, node_id)


async def filter_handled_faults(
    connection: Connection, node_id: NodeId, event_ids: Iterable[UUID]
) -> set[UUID]:
    """Return the faults among these that were acted on."""
    rows = await connection.fetch(_HANDLED_FAULTS, node_id, list(event_ids))
    return {row["event_id"] for row in rows}


async def add_fault(connection: Connection, node_id: NodeId, boot_id: UUID, fault: Fault) -> None:
    await connection.execute(
        _ADD_FAULT, node_id, fault.event_id, boot_id, fault.device_uuid, fault.reason
    )


async def _upsert(
    connection: Connection, node_id: NodeId, device: DeviceFacts, groups: tuple[int, ...]
) -> tuple[OpenHolding, bool]:
    [row] = await connection.fetch(
        _UPSERT_DEVICE,
        node_id,
        *(device.uuid, device.index, device.name, device.memory_total_mb, device.simulated),
        *(device.health.value, device.health_detail, device.compute_capability),
        *(device.numa_node, device.mig_enabled, device.parent_uuid, device.mig_profile),
        *(list(groups), None if device.mig_layout is None else to_json(device.mig_layout)),
    )
    fields = dict(row)
    is_new_cordoned: bool = fields.pop("is_new_cordoned")
    return OpenHolding(**fields), is_new_cordoned
