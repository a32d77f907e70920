"""What the ledger tells the leader: everything once, and from then on what is new since its last
look.

A look remembers the database's snapshot it was made in. Whatever a later look finds that was not
visible in it is new, in whatever order transactions have committed.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import NodeId
from services.scheduler.store import Row
from shared.database import Connection

_LOOK: Final = """
WITH new AS MATERIALIZED (
    SELECT reservation_id, device_no, node_id FROM change
    WHERE xid >= pg_snapshot_xmin($1::text::pg_snapshot)
        AND NOT pg_visible_in_snapshot(xid, $1::text::pg_snapshot)
        AND xid <> ALL($2::text[]::xid8[]))
SELECT pg_current_snapshot()::text AS snapshot, statement_timestamp() AS now,
    ARRAY(SELECT DISTINCT reservation_id FROM new WHERE reservation_id IS NOT NULL)
        AS reservation_ids,
    ARRAY(SELECT DISTINCT device_no FROM new WHERE device_no IS NOT NULL) AS device_nos,
    ARRAY(SELECT DISTINCT node_id FROM new WHERE node_id IS NOT NULL) AS node_ids,
    ARRAY(SELECT reservation_id FROM reservation
        WHERE lease_expires_at <= statement_timestamp()) AS expired,
    ARRAY(SELECT reservation_id FROM reservation
        WHERE preempting_until <= statement_timestamp()) AS preempted,
    least((SELECT min(lease_expires_at) FROM reservation WHERE lease_expires_at IS NOT NULL),
        (SELECT min(preempting_until) FROM reservation WHERE preempting_until IS NOT NULL))
        AS next_end_at
"""

_RESERVATIONS: Final = """
SELECT r.reservation_id, r.state, r.request::text AS request, r.arrival, r.requested_at,
    r.wait_deadline_at, r.granted_at, r.preempting_until, r.preempted_for,
    ARRAY(SELECT h.device_no FROM holding h WHERE h.reservation_id = r.reservation_id
        AND h.released_at IS NULL ORDER BY h.device_no) AS numbers
FROM reservation r
"""
_DEVICES: Final = """
SELECT d.*, h.reservation_id, h.quarantined_at IS NOT NULL AS quarantined
FROM device d LEFT JOIN holding h ON h.device_no = d.device_no AND h.released_at IS NULL
"""
_NODES: Final = """
SELECT n.node_id, n.source, n.labels, n.host, n.inventory_at IS NOT NULL AS inventoried,
    extract(epoch FROM clock_timestamp() - n.first_seen_at) AS known_seconds, n.lost
FROM node n
"""


class Look(Struct, frozen=True, kw_only=True):
    """What is new, and what time alone has brought; `now` is the database's."""

    snapshot: str
    now: datetime
    reservation_ids: list[UUID]
    device_nos: list[int]
    node_ids: list[NodeId]
    expired: list[UUID]
    preempted: list[UUID]
    next_end_at: datetime | None

    @property
    def is_news(self) -> bool:
        """Whether anything has changed."""
        return bool(self.reservation_ids or self.device_nos or self.node_ids)


class Rows(Struct, frozen=True, kw_only=True):
    """Rows as they are now, of what was asked for."""

    reservations: Sequence[Row] = ()
    devices: Sequence[Row] = ()
    nodes: Sequence[Row] = ()


async def look(connection: Connection, snapshot: str, own: Sequence[str] = ()) -> Look:
    """What others than the transactions `own` have changed since the snapshot of another look."""
    return Look(**dict(await connection.fetchrow(_LOOK, snapshot, list(own))))


async def read(connection: Connection, seen: Look) -> Rows:
    """The rows of what has changed, as they are now: newer changes may show, and show again."""
    if not seen.is_news:
        return Rows()
    reservations: Sequence[Row] = ()
    devices: Sequence[Row] = ()
    nodes: Sequence[Row] = ()
    if seen.reservation_ids:
        reservations = await connection.fetch(
            f"{_RESERVATIONS} WHERE r.reservation_id = ANY($1)", seen.reservation_ids
        )
    if seen.device_nos:
        devices = await connection.fetch(f"{_DEVICES} WHERE d.device_no = ANY($1)", seen.device_nos)
    if seen.node_ids:
        nodes = await connection.fetch(f"{_NODES} WHERE n.node_id = ANY($1)", seen.node_ids)
    return Rows(reservations=reservations, devices=devices, nodes=nodes)


async def read_all(connection: Connection) -> tuple[str, Rows]:
    """Everything that decisions depend on, and the snapshot from which changes go on.

    The transaction has to be one of repeatable reads.
    """
    snapshot: str = await connection.fetchval("SELECT pg_current_snapshot()::text")
    rows = Rows(
        reservations=await connection.fetch(
            f"{_RESERVATIONS} WHERE r.state = 'queued' OR r.reservation_id IN"
            " (SELECT h.reservation_id FROM holding h WHERE h.released_at IS NULL)"
        ),
        devices=await read_devices(connection),
        nodes=await read_nodes(connection),
    )
    return snapshot, rows


async def read_devices(connection: Connection, node_ids: Collection[NodeId] = ()) -> Sequence[Row]:
    """Devices with their open holdings: of these nodes, or of all."""
    rows: Sequence[Row] = await connection.fetch(
        f"{_DEVICES} WHERE cardinality($1::text[]) = 0 OR d.node_id = ANY($1)", list(node_ids)
    )
    return rows


async def read_nodes(connection: Connection) -> Sequence[Row]:
    """Every node."""
    rows: Sequence[Row] = await connection.fetch(f"{_NODES} ORDER BY n.node_id")
    return rows


async def forget(connection: Connection, older_than_seconds: float, limit: int) -> int:
    """Delete changes that every look has seen; how many."""
    count: int = await connection.fetchval(
        "WITH gone AS (DELETE FROM change WHERE change_id IN (SELECT change_id FROM change"
        " WHERE changed_at < now() - $1 * interval '1 second' ORDER BY change_id LIMIT $2)"
        " RETURNING 1) SELECT count(*) FROM gone",
        older_than_seconds,
        limit,
    )
    return count
