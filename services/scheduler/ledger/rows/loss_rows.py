"""Cordons that lift themselves: for a loss, or because the ledger was restored from a backup."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from schemas.base import DeviceUuid, NodeId
from schemas.scheduler.devices import LIFTS_ITSELF
from services.scheduler.domain.faults import Loss
from services.scheduler.ledger.rows.holding_rows import OpenHolding, by_number
from services.scheduler.ledger.rows.node_rows import IN_SERVICE
from shared.postgres.database import Connection

_CAUSES: Final = sorted(cause.value for cause in LIFTS_ITSELF)
# Who holds a lease from after the backup stops by itself when that is over: no such lease is longer
# than the longest on record, or than this.
SHORTEST_WAIT_SECONDS: Final = 30
_AFTER_RESTORE: Final = f"""
{{0}}.cordon_cause = 'restored' AS is_restored,
CASE WHEN {{0}}.cordon_cause = 'restored' THEN {{0}}.cordoned_at + interval '1 second' * (
    SELECT greatest({SHORTEST_WAIT_SECONDS}, max(lease_ttl_seconds)) FROM reservation)
    <= clock_timestamp() ELSE true END
"""
_LOSSES: Final = f"""
SELECT d.node_id, d.uuid, d.device_no, d.health = 'ok' AND NOT n.lost AS is_well, d.quiet_since,
    {_AFTER_RESTORE.format("d")} AS are_leases_over
FROM device d JOIN node n USING (node_id) WHERE d.cordoned AND d.cordon_cause = ANY($1)
UNION ALL
SELECT n.node_id, NULL, NULL, NOT n.lost, n.quiet_since, {_AFTER_RESTORE.format("n")}
FROM node n WHERE n.cordoned AND n.cordon_cause = ANY($1)
"""
_QUIET_DEVICES: Final = "UPDATE device SET quiet_since = $2 WHERE device_no = ANY($1)"
_QUIET_NODES: Final = "UPDATE node SET quiet_since = $2 WHERE node_id = ANY($1)"
# What was lost again meanwhile, or cordoned for more than the loss, stays out of service.
_LIFT_DEVICES: Final = f"""
UPDATE device {IN_SERVICE}
WHERE device_no = ANY($1) AND cordoned AND cordon_cause = ANY($2) AND health = 'ok'
RETURNING device_no, node_id, uuid, false AS quarantined
"""
_LIFT_NODES: Final = f"""
UPDATE node {IN_SERVICE}
WHERE node_id = ANY($1) AND cordoned AND cordon_cause = ANY($2) AND NOT lost
"""


class LossRow(Struct, frozen=True, kw_only=True):
    """Such a cordon, of a device or with None of a node; `is_well` by what was reported.

    `is_restored`: it is for a restore; then `are_leases_over` once those from before it are.
    """

    node_id: NodeId
    uuid: DeviceUuid | None
    device_no: int | None
    is_well: bool
    quiet_since: datetime | None
    is_restored: bool
    are_leases_over: bool


async def losses(connection: Connection) -> list[LossRow]:
    """Devices and nodes that are cordoned until something is over."""
    return [LossRow(**dict(row)) for row in await connection.fetch(_LOSSES, _CAUSES)]


async def write_quiet(
    connection: Connection, of: Sequence[Loss], quiet_since: datetime | None
) -> None:
    """Store since when these are well; None: they are not, after all."""
    numbers, node_ids = _numbers_and_nodes(of)
    await connection.execute(_QUIET_DEVICES, numbers, quiet_since)
    await connection.execute(_QUIET_NODES, node_ids, quiet_since)


async def lift(connection: Connection, over: Sequence[Loss]) -> list[OpenHolding]:
    """Take back into service what these losses cordoned; the devices among it."""
    numbers, node_ids = _numbers_and_nodes(over)
    await connection.execute(_LIFT_NODES, node_ids, _CAUSES)
    return by_number(await connection.fetch(_LIFT_DEVICES, numbers, _CAUSES))


def _numbers_and_nodes(of: Sequence[Loss]) -> tuple[list[int], list[NodeId]]:
    numbers = sorted(loss.device_no for loss in of if loss.device_no is not None)
    return numbers, sorted(loss.node_id for loss in of if loss.device_no is None)
