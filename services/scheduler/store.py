"""Rows of the ledger in and out: functions on a connection, inside the caller's transaction."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Self
from uuid import UUID

from msgspec import Struct

from schemas.base import NodeId
from schemas.errors import ErrorCode
from schemas.gpu_request import DeviceGrant, GpuRequest, Reason
from schemas.scheduler import ReservationState
from schemas.scheduler_views import ListReservations
from schemas.telemetry import Source
from shared.database import Connection, from_json, to_json
from shared.errors import RefusedError

Row = Mapping[str, Any]

_RESERVATION: Final = """
SELECT r.*, EXISTS (
    SELECT 1 FROM holding h WHERE h.reservation_id = r.reservation_id
    AND h.released_at IS NULL AND h.quarantined_at IS NOT NULL) AS quarantined
FROM reservation r
"""


class Reservation(Struct, frozen=True, kw_only=True):
    """A reservation as stored. `quarantined`: it has open holdings whose stop is not confirmed."""

    reservation_id: UUID
    namespace: str
    holder: str
    request: GpuRequest
    state: ReservationState
    revision: int
    requested_at: datetime
    wait_deadline_at: datetime
    granted_at: datetime | None
    ended_at: datetime | None
    epoch: int | None
    node_id: NodeId | None
    devices: tuple[DeviceGrant, ...]
    lease_ttl_seconds: float
    lease_expires_at: datetime | None
    preempting_until: datetime | None
    preempted_for: UUID | None
    reasons: tuple[Reason, ...]
    reason: str
    quarantined: bool

    @property
    def holds_host(self) -> bool:
        """Whether it holds CPUs or memory of nodes beside devices."""
        return bool(self.request.cpu_count or self.request.host_memory_mb)

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        """The nodes of its devices, the first one first."""
        return tuple(dict.fromkeys(device.node_id for device in self.devices))

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """From `SELECT r.*, quarantined`."""
        plain = {name: row[name] for name in cls.__struct_fields__}
        return cls(
            **plain
            | {
                "request": from_json(row["request"], GpuRequest),
                "state": ReservationState(row["state"]),
                "devices": from_json(row["devices"], tuple[DeviceGrant, ...]),
                "reasons": from_json(row["reasons"], tuple[Reason, ...]),
            }
        )


class Ending(Struct, frozen=True, kw_only=True):
    """How a reservation is to end."""

    stored: Reservation
    state: ReservationState
    reason: str = ""
    reasons: tuple[Reason, ...] = ()


class KnownNode(Struct, frozen=True, kw_only=True):
    """A node that has reported. `inventoried`: it has told its devices."""

    node_id: NodeId
    source: Source
    inventoried: bool
    recent: bool


class OpenHolding(Struct, frozen=True, kw_only=True):
    """A device of a reservation that is not given back."""

    device_no: int
    node_id: NodeId
    uuid: str
    quarantined: bool


async def database_now(connection: Connection) -> datetime:
    """The one clock of leases, deadlines and leadership."""
    now: datetime = await connection.fetchval("SELECT clock_timestamp()")
    return now


async def find(
    connection: Connection, reservation_id: UUID, *, lock: bool = False
) -> Reservation | None:
    """A reservation; with `lock` nobody else changes it before this transaction ends."""
    if lock:
        await connection.execute(
            "SELECT 1 FROM reservation WHERE reservation_id = $1 FOR UPDATE", reservation_id
        )
    row = await connection.fetchrow(f"{_RESERVATION} WHERE r.reservation_id = $1", reservation_id)
    return Reservation.from_row(row) if row is not None else None


async def find_locked(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, Reservation]:
    """Several reservations, locked in the order in which everybody locks them."""
    wanted = list(ids)
    await connection.execute(
        "SELECT 1 FROM reservation WHERE reservation_id = ANY($1) ORDER BY reservation_id"
        " FOR UPDATE",
        wanted,
    )
    rows = await connection.fetch(f"{_RESERVATION} WHERE r.reservation_id = ANY($1)", wanted)
    return {row["reservation_id"]: Reservation.from_row(row) for row in rows}


async def lock(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, Reservation]:
    """As `find_locked` in one statement, for those of whom a quarantine does not matter."""
    rows = await connection.fetch(
        "SELECT *, false AS quarantined FROM reservation WHERE reservation_id = ANY($1)"
        " ORDER BY reservation_id FOR UPDATE",
        list(ids),
    )
    return {row["reservation_id"]: Reservation.from_row(row) for row in rows}


async def write_ended(connection: Connection, ended: Sequence[Reservation]) -> None:
    """Store how reservations have ended."""
    await connection.execute(
        "UPDATE reservation r SET state = new.state, revision = new.revision,"
        " ended_at = new.ended_at, reason = new.reason, reasons = new.reasons::jsonb,"
        " lease_expires_at = NULL, preempting_until = NULL"
        " FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::timestamptz[], $5::text[],"
        " $6::text[]) AS new (reservation_id, state, revision, ended_at, reason, reasons)"
        " WHERE r.reservation_id = new.reservation_id",
        [one.reservation_id for one in ended],
        [one.state.value for one in ended],
        [one.revision for one in ended],
        [one.ended_at for one in ended],
        [one.reason for one in ended],
        [to_json(one.reasons) for one in ended],
    )


async def forget_ended(connection: Connection, days: float, limit: int) -> int:
    """Delete reservations that ended long ago and hold nothing any more; how many."""
    rows = await connection.fetch(
        "SELECT reservation_id FROM reservation r"
        " WHERE ended_at < clock_timestamp() - $1 * interval '1 day'"
        " AND NOT EXISTS (SELECT 1 FROM holding h WHERE h.reservation_id = r.reservation_id"
        " AND h.released_at IS NULL)"
        " AND NOT EXISTS (SELECT 1 FROM drift d WHERE d.reservation_id = r.reservation_id"
        " AND d.ended_at IS NULL)"
        " ORDER BY reservation_id LIMIT $2 FOR UPDATE SKIP LOCKED",
        days,
        limit,
    )
    ids = [row["reservation_id"] for row in rows]
    for table in ("holding", "host_holding", "reservation"):
        await connection.execute(f"DELETE FROM {table} WHERE reservation_id = ANY($1)", ids)
    return len(ids)


async def release_holdings(connection: Connection, freed: Sequence[tuple[UUID, int]]) -> None:
    """Close holdings and count their devices' release, devices by number."""
    ordered = sorted(freed, key=lambda pair: pair[1])
    ids, numbers = [pair[0] for pair in ordered], [pair[1] for pair in ordered]
    await connection.execute(
        "UPDATE holding h SET released_at = clock_timestamp()"
        " FROM unnest($1::uuid[], $2::bigint[]) AS gone (reservation_id, device_no)"
        " WHERE h.reservation_id = gone.reservation_id AND h.device_no = gone.device_no",
        ids,
        numbers,
    )
    await connection.execute(
        "WITH locked AS (SELECT device_no FROM device WHERE device_no = ANY($2)"
        " ORDER BY device_no FOR UPDATE)"
        " UPDATE device d SET releases = d.releases + 1, released_by = gone.reservation_id"
        " FROM unnest($1::uuid[], $2::bigint[]) AS gone (reservation_id, device_no)"
        " JOIN locked USING (device_no) WHERE d.device_no = gone.device_no",
        ids,
        numbers,
    )


async def release_all(connection: Connection, ids: Sequence[UUID]) -> Sequence[Row]:
    """Close everything these reservations hold; the devices, as they are then."""
    rows: Sequence[Row] = await connection.fetch(
        "WITH gone AS (UPDATE holding SET released_at = clock_timestamp()"
        " WHERE reservation_id = ANY($1) AND released_at IS NULL"
        " RETURNING reservation_id, device_no),"
        " locked AS (SELECT device_no FROM device"
        " WHERE device_no IN (SELECT device_no FROM gone) ORDER BY device_no FOR UPDATE)"
        " UPDATE device d SET releases = d.releases + 1, released_by = gone.reservation_id"
        " FROM gone JOIN locked USING (device_no) WHERE d.device_no = gone.device_no"
        " RETURNING d.node_id, d.uuid, d.releases, d.released_by",
        list(ids),
    )
    return rows


async def release_hosts(connection: Connection, ids: Sequence[UUID]) -> None:
    """Give back what these reservations hold of nodes on which they hold no device any more."""
    await connection.execute(
        "WITH gone AS (UPDATE host_holding hh SET released_at = clock_timestamp()"
        " WHERE hh.reservation_id = ANY($1) AND hh.released_at IS NULL AND NOT EXISTS ("
        "SELECT 1 FROM holding h JOIN device d USING (device_no)"
        " WHERE h.reservation_id = hh.reservation_id AND d.node_id = hh.node_id"
        " AND h.released_at IS NULL) RETURNING hh.node_id, hh.cpu_milli, hh.memory_mb),"
        " sums AS (SELECT node_id, sum(cpu_milli) AS cpu_milli, sum(memory_mb) AS memory_mb"
        " FROM gone GROUP BY node_id),"
        " locked AS (SELECT u.node_id FROM node_use u JOIN sums USING (node_id)"
        " ORDER BY u.node_id FOR UPDATE OF u)"
        " UPDATE node_use u SET cpu_milli = u.cpu_milli - sums.cpu_milli,"
        " memory_mb = u.memory_mb - sums.memory_mb"
        " FROM sums JOIN locked USING (node_id) WHERE u.node_id = sums.node_id",
        list(ids),
    )


async def waiting_by_priority(connection: Connection) -> dict[int, int]:
    """How many requests wait, by priority."""
    rows = await connection.fetch(
        "SELECT priority, count(*) AS waiting FROM reservation WHERE state = 'queued'"
        " GROUP BY priority"
    )
    return {row["priority"]: row["waiting"] for row in rows}


async def find_all(connection: Connection, query: ListReservations) -> list[Reservation]:
    """Reservations that match, newest first."""
    rows = await connection.fetch(
        f"{_RESERVATION} WHERE (cardinality($1::text[]) = 0 OR r.state = ANY($1))"
        " AND ($2::text IS NULL OR r.namespace = $2) AND ($3::text IS NULL OR r.node_id = $3"
        " OR r.devices @> jsonb_build_array(jsonb_build_object('node_id', $3)))"
        " ORDER BY r.arrival DESC LIMIT $4",
        [state.value for state in query.states],
        query.namespace,
        query.node_id,
        query.limit,
    )
    return [Reservation.from_row(row) for row in rows]


async def owners(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, tuple[str, str]]:
    """Namespace and holder of reservations."""
    rows = await connection.fetch(
        "SELECT reservation_id, namespace, holder FROM reservation WHERE reservation_id = ANY($1)",
        list(ids),
    )
    return {row["reservation_id"]: (row["namespace"], row["holder"]) for row in rows}


async def open_holdings(connection: Connection, reservation_id: UUID) -> list[OpenHolding]:
    """What a reservation still holds, quarantined or not."""
    rows = await connection.fetch(
        "SELECT d.device_no, d.node_id, d.uuid, h.quarantined_at IS NOT NULL AS quarantined"
        " FROM holding h JOIN device d USING (device_no)"
        " WHERE h.reservation_id = $1 AND h.released_at IS NULL ORDER BY d.device_no",
        reservation_id,
    )
    return [OpenHolding(**dict(row)) for row in rows]


async def nodes(connection: Connection, recent_seconds: float) -> list[KnownNode]:
    """Every known node; `recent` ones were first heard of less than `recent_seconds` ago."""
    rows = await connection.fetch(
        "SELECT node_id, source, inventory_at IS NOT NULL AS inventoried,"
        " first_seen_at > clock_timestamp() - $1 * interval '1 second' AS recent"
        " FROM node ORDER BY node_id",
        recent_seconds,
    )
    return [
        KnownNode(
            node_id=row["node_id"],
            source=Source(row["source"]),
            inventoried=row["inventoried"],
            recent=row["recent"],
        )
        for row in rows
    ]


async def check_node(connection: Connection, node_id: NodeId) -> None:
    """Raises RefusedError for a node that never reported."""
    if not await connection.fetchval("SELECT 1 FROM node WHERE node_id = $1", node_id):
        raise RefusedError(ErrorCode.NOT_FOUND, f"no node {node_id}", path="$.node_id")


async def next_node_revision(connection: Connection, node_id: NodeId) -> int:
    """The revision of a node's next device event; locks the node's row."""
    revision: int = await connection.fetchval(
        "UPDATE node SET event_revision = event_revision + 1 WHERE node_id = $1"
        " RETURNING event_revision",
        node_id,
    )
    return revision


async def raise_epoch(connection: Connection, largest: int) -> None:
    """Never again draw an epoch that an executor has already seen."""
    await connection.execute("UPDATE epoch SET value = $1 WHERE value < $1", largest)
