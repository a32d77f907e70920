"""Rows of changes to how GPUs are divided."""

from typing import Final

from msgspec import Struct

from schemas.base import DeviceUuid, NodeId
from schemas.gpus.mig import MigLayout
from schemas.telemetry.readings import InventoryReported
from services.scheduler.ledger.lock_order import lock_nodes
from services.scheduler.ledger.rows.holding_rows import OpenHolding
from shared.postgres.database import Connection, to_json

REFUSED_SECONDS: Final = 60.0  # after which a GPU that refused is tried again

_ANY_DIVISIBLE: Final = """
SELECT EXISTS (SELECT 1 FROM device WHERE mig_layout IS NOT NULL AND NOT removed)
"""
_RECENT: Final = """
SELECT node_id, device_uuid, profile, over_at IS NULL AS is_open FROM mig_change
WHERE over_at IS NULL
    OR (refusal <> '' AND over_at > clock_timestamp() - $1 * interval '1 second')
"""
# Nothing is granted of a locked one. Those that are as they were decided on: the GPU with its
# layout, and instances that no reservation holds.
_LOCK_DEVICES: Final = """
WITH locked AS MATERIALIZED (
    SELECT device_no, uuid, mig_layout FROM device
    WHERE node_id = $1 AND (uuid = $2 OR uuid = ANY($3)) AND NOT removed AND NOT cordoned
        AND health = 'ok'
    ORDER BY device_no FOR UPDATE)
SELECT count(*) FROM locked
WHERE (uuid <> $2 OR mig_layout = $4::jsonb)
    AND NOT EXISTS (SELECT 1 FROM holding h WHERE h.device_no = locked.device_no
        AND h.released_at IS NULL)
"""
# Above what the agent has seen, also where this ledger is from a backup.
_INSERT: Final = """
INSERT INTO mig_change (node_id, device_uuid, number, profile, start)
SELECT $1, $2, greatest(coalesce(max(number), 0), $3) + 1, $4, $5 FROM mig_change
WHERE node_id = $1 AND device_uuid = $2
RETURNING number
"""
_FINISH: Final = """
UPDATE mig_change SET over_at = clock_timestamp(), refusal = $4
WHERE node_id = $1 AND device_uuid = $2 AND number <= $3 AND over_at IS NULL RETURNING true
"""
_LIFT: Final = """
UPDATE device SET cordoned = false, cordon_cause = 'operator', cordon_reason = '',
    cordon_set_by = '', cordoned_at = NULL, quiet_since = NULL, removed = NOT (uuid = ANY($3))
WHERE node_id = $1 AND parent_uuid = $2 AND cordoned AND cordon_cause = 'mig'
RETURNING device_no, node_id, uuid, false AS quarantined, removed
"""
_DELETE: Final = """
DELETE FROM mig_change old WHERE node_id = $1 AND device_uuid = $2 AND over_at IS NOT NULL
    AND number < $3
"""


class RecentChange(Struct, frozen=True, kw_only=True):
    """One that is under way, or that was refused a moment ago."""

    node_id: NodeId
    device_uuid: DeviceUuid
    profile: str
    is_open: bool


async def is_any_divisible(connection: Connection) -> bool:
    return bool(await connection.fetchval(_ANY_DIVISIBLE))


async def recent(connection: Connection) -> list[RecentChange]:
    rows = await connection.fetch(_RECENT, REFUSED_SECONDS)
    return [RecentChange(**dict(row)) for row in rows]


async def lock(
    connection: Connection,
    node_id: NodeId,
    device_uuid: DeviceUuid,
    layout: MigLayout,
    removed: frozenset[DeviceUuid],
) -> bool:
    """Lock a GPU and its instances; return True if they are as decided on. Nothing is granted of
    them meanwhile.
    """
    await lock_nodes(connection, [node_id])
    unchanged = await connection.fetchval(
        _LOCK_DEVICES, node_id, device_uuid, sorted(removed), to_json(layout)
    )
    return bool(unchanged == 1 + len(removed))


async def insert(
    connection: Connection,
    node_id: NodeId,
    device_uuid: DeviceUuid,
    last_number: int,
    place: tuple[str, int],
) -> int:
    """Return the number of the new change; `last_number` is the agent's last one."""
    return int(await connection.fetchval(_INSERT, node_id, device_uuid, last_number, *place))


async def finish(connection: Connection, event: InventoryReported) -> list[OpenHolding]:
    """End the changes that an inventory shows as over; instances that may be granted again."""
    present = [device.uuid for device in event.devices]
    lifted: list[OpenHolding] = []
    for device in event.devices:
        layout = device.mig_layout
        if layout is None or not layout.change:
            continue
        of = (event.node_id, device.uuid)
        if await connection.fetchval(_FINISH, *of, layout.change, layout.refusal):
            rows = [dict(row) for row in await connection.fetch(_LIFT, *of, present)]
            lifted += [OpenHolding(**row) for row in rows if not row.pop("removed")]
            await connection.execute(_DELETE, *of, layout.change)
    return lifted
