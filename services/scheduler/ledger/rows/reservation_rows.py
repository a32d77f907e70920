"""Rows of reservations."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from msgspec import Struct

from schemas.base import Command, Count, NodeId
from schemas.gpus.device_grant import ClusterPlacement, DeviceGrant
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.idle import IdleAction
from schemas.scheduler.namespaces import PreemptionCause
from schemas.scheduler.reasons import Reason
from schemas.scheduler.reservations import (
    HOLDING_STATES,
    RequestReservation,
    ReservationState,
)
from schemas.scheduler.views import ListReservations
from shared.postgres.database import Connection, Row, Writer, from_json, to_json
from shared.postgres.kept_plans import plan_for_arguments

_NOW: Final = "SELECT clock_timestamp()"
_BEFORE_ITS_END: Final = frozenset({ReservationState.QUEUED, *HOLDING_STATES})
COLUMNS: Final = """
r.reservation_id, r.arrival, r.namespace, r.holder, r.request, r.state, r.revision, r.requested_at,
r.wait_deadline_at, r.granted_at, r.ended_at, r.epoch, r.node_id, r.devices, r.lease_ttl_seconds,
r.lease_expires_at, r.preempting_until, r.preempted_for, r.preempted_by, r.reasons, r.reason,
r.cluster, r.idle_since, r.idle_warned_at, r.idle_action, r.idle_acts_at, r.idle_preemptible,
r.idle_exempt_until, r.idle_exempt_reason, r.forecast_start_at, r.requester
"""
_RESERVATION: Final = f"""
SELECT {COLUMNS}, EXISTS (
    SELECT 1 FROM holding h WHERE h.reservation_id = r.reservation_id
    AND h.released_at IS NULL AND h.quarantined_at IS NOT NULL) OR EXISTS (
    SELECT 1 FROM cluster_holding h WHERE h.reservation_id = r.reservation_id
    AND h.released_at IS NULL AND h.quarantined_at IS NOT NULL) AS quarantined
FROM reservation r
"""
_FIND: Final = f"{_RESERVATION} WHERE r.reservation_id = $1"
_FIND_ALL: Final = f"""
{_RESERVATION} WHERE (cardinality($1::text[]) = 0 OR r.state = ANY($1))
    AND ($2::text IS NULL OR r.namespace = $2) AND ($3::text IS NULL OR r.node_id = $3
        OR r.devices @> jsonb_build_array(jsonb_build_object('node_id', $3)))
    AND ($5::bigint IS NULL OR r.arrival < $5)
ORDER BY r.arrival DESC LIMIT $4
"""
# The clock is read behind each row's lock.
_LOCK: Final = f"""
WITH locked AS MATERIALIZED (
    SELECT {COLUMNS} FROM reservation r WHERE r.reservation_id = ANY($1)
    ORDER BY r.reservation_id FOR UPDATE)
SELECT *, clock_timestamp() AS now FROM locked
"""
_QUARANTINED: Final = """
SELECT reservation_id FROM holding
WHERE reservation_id = ANY($1) AND released_at IS NULL AND quarantined_at IS NOT NULL
UNION SELECT reservation_id FROM cluster_holding
WHERE reservation_id = ANY($1) AND released_at IS NULL AND quarantined_at IS NOT NULL
"""
# Identity numbers are given in the order of the commands. `queued` is from before them.
_INSERT: Final = """
WITH waiting AS MATERIALIZED (
    SELECT coalesce(jsonb_object_agg(priority, number), '{}')::text AS queued FROM (
        SELECT priority, count(*) AS number FROM reservation WHERE state = 'queued'
        GROUP BY priority) AS by_priority)
INSERT INTO reservation (reservation_id, namespace, holder, request, state, revision, requested_at,
    wait_deadline_at, lease_ttl_seconds, priority, requester)
SELECT new.reservation_id, new.namespace, new.holder, new.request::jsonb, 'queued', 1,
    clock.now, clock.now + new.wait_seconds * interval '1 second', new.lease_ttl_seconds,
    new.priority, new.requester
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::float8[], $6::float8[], $7::int[],
        $8::text[])
    WITH ORDINALITY AS new (reservation_id, namespace, holder, request, wait_seconds,
        lease_ttl_seconds, priority, requester, place), (SELECT clock_timestamp() AS now) AS clock
ORDER BY new.place
ON CONFLICT DO NOTHING
RETURNING reservation_id, requested_at, wait_deadline_at, (SELECT queued FROM waiting) AS queued
"""
_WAITING_SINCE: Final = """
SELECT arrival, reservation_id, requested_at FROM reservation
WHERE state = 'queued' AND arrival > $1 AND request->>'cluster' IS NULL
    AND requested_at < clock_timestamp() - $2 * interval '1 second'
ORDER BY arrival DESC LIMIT $3
"""
_FORECAST: Final = """
UPDATE reservation SET forecast_start_at = $2
WHERE reservation_id = $1 AND state = 'queued' AND forecast_start_at IS NULL
"""
_RENEW: Final = """
UPDATE reservation r SET state = new.state, revision = new.revision,
    lease_expires_at = clock_timestamp() + r.lease_ttl_seconds * interval '1 second'
FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS new (reservation_id, state, revision)
WHERE r.reservation_id = new.reservation_id
"""
_BEGIN_RELEASE: Final = """
UPDATE reservation SET state = 'releasing', reason = $2, lease_expires_at = NULL
WHERE reservation_id = $1
"""
_END: Final = """
UPDATE reservation r SET state = new.state, revision = new.revision, ended_at = new.ended_at,
    reason = new.reason, reasons = new.reasons::jsonb, lease_expires_at = NULL,
    preempting_until = NULL
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::timestamptz[], $5::text[], $6::text[])
    AS new (reservation_id, state, revision, ended_at, reason, reasons)
WHERE r.reservation_id = new.reservation_id
"""
_EPOCHS: Final = "SELECT reservation_id, epoch FROM reservation WHERE reservation_id = ANY($1)"
_ENDS: Final = """
SELECT reservation_id, ended_at FROM reservation WHERE ended_at >= $1
"""
_RAISE_EPOCH: Final = "UPDATE epoch SET value = $1 WHERE value < $1"
_ENDED_LONG_AGO: Final = """
SELECT reservation_id FROM reservation r
WHERE ended_at < clock_timestamp() - $1 * interval '1 day'
    AND NOT EXISTS (SELECT 1 FROM holding h
        WHERE h.reservation_id = r.reservation_id AND h.released_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM cluster_holding h
        WHERE h.reservation_id = r.reservation_id AND h.released_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM drift d
        WHERE d.reservation_id = r.reservation_id AND d.ended_at IS NULL)
ORDER BY ended_at LIMIT $2 FOR UPDATE SKIP LOCKED
"""
_AUDITED: Final = """
SELECT holder, requester, request, state, reason FROM reservation WHERE reservation_id = $1
"""
_DELETE: Final = (
    "DELETE FROM holding WHERE reservation_id = ANY($1)",
    "DELETE FROM cluster_holding WHERE reservation_id = ANY($1)",
    "DELETE FROM host_holding WHERE reservation_id = ANY($1)",
    "DELETE FROM reservation WHERE reservation_id = ANY($1)",
)


class Reservation(Struct, frozen=True, kw_only=True):
    """A reservation as stored. `quarantined`: it has open holdings whose stop is not confirmed."""

    reservation_id: UUID
    arrival: int
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
    preempted_by: PreemptionCause
    reasons: tuple[Reason, ...]
    reason: str
    quarantined: bool
    cluster: ClusterPlacement | None = None
    idle_since: datetime | None = None
    idle_warned_at: datetime | None = None
    idle_action: IdleAction | None = None
    idle_acts_at: datetime | None = None
    idle_preemptible: bool = False
    idle_exempt_until: datetime | None = None
    idle_exempt_reason: str = ""
    forecast_start_at: datetime | None = None
    requester: str = ""

    @property
    def holds_host(self) -> bool:
        """True if it holds CPUs or memory of nodes besides devices."""
        return bool(self.request.cpu_count or self.request.host_memory_mb)

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        """The nodes of its devices, the first one first; or its cluster."""
        if self.cluster is not None:
            return (self.cluster.cluster_id,)
        return tuple(dict.fromkeys(device.node_id for device in self.devices))

    @classmethod
    def from_row(cls, row: Row, *, quarantined: bool = False) -> Self:
        """Make one from a row of `COLUMNS`."""
        plain = {name: row[name] for name in cls.__struct_fields__ if name != "quarantined"}
        return cls(
            **plain
            | {
                "request": from_json(row["request"], GpuRequest),
                "state": ReservationState(row["state"]),
                "preempted_by": PreemptionCause(row["preempted_by"]),
                "devices": from_json(row["devices"], tuple[DeviceGrant, ...]),
                "reasons": from_json(row["reasons"], tuple[Reason, ...]),
                "quarantined": quarantined,
                "cluster": from_json(row["cluster"], ClusterPlacement) if row["cluster"] else None,
                "idle_action": IdleAction(row["idle_action"]) if row["idle_action"] else None,
            }
        )


class ReservationPlace(Struct, frozen=True, array_like=True, tag="reservation"):
    """Where a reservation is in a list, newest first."""

    arrival: Count


class QueuedTimes(NamedTuple):
    """When a request was stored, and until when it waits."""

    requested_at: datetime
    wait_deadline_at: datetime


class Waiting(NamedTuple):
    """A request that is queued for our own GPUs."""

    arrival: int
    reservation_id: UUID
    requested_at: datetime


class Ending(Struct, frozen=True, kw_only=True):
    """How a reservation is to end. `told_reasons` are those of its event; None: the stored ones."""

    stored: Reservation
    state: ReservationState
    reason: str = ""
    reasons: tuple[Reason, ...] = ()
    told_reasons: tuple[Reason, ...] | None = None


async def database_now(connection: Connection) -> datetime:
    """The one clock of leases, deadlines and leadership."""
    now: datetime = await connection.fetchval(_NOW)
    return now


async def find(connection: Connection, reservation_id: UUID) -> Reservation | None:
    """A reservation as it is; the next moment it may be another."""
    row = await connection.fetchrow(_FIND, reservation_id)
    return Reservation.from_row(row, quarantined=row["quarantined"]) if row is not None else None


async def find_all(
    connection: Connection, query: ListReservations, place: ReservationPlace | None, limit: int
) -> list[Reservation]:
    """Reservations that match, newest first."""
    await plan_for_arguments(connection)
    rows = await connection.fetch(
        _FIND_ALL,
        [state.value for state in query.states],
        query.namespace,
        query.node_id,
        limit,
        place.arrival if place is not None else None,
    )
    return [Reservation.from_row(row, quarantined=row["quarantined"]) for row in rows]


async def lock(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, Reservation]:
    """Reservations, unchanged by other transactions until this one ends; unknown ones left out."""
    return (await lock_at(connection, ids))[0]


async def lock_at(
    connection: Connection, ids: Iterable[UUID]
) -> tuple[dict[UUID, Reservation], datetime]:
    """Lock as `lock` does; also the time when all were locked."""
    rows = await connection.fetch(_LOCK, list(ids))
    now = max(row["now"] for row in rows) if rows else await database_now(connection)
    # What is queued or held on a lease waits for no confirmed stop. A second statement for the
    # others: the first one's snapshot is from before it waited for the locks.
    over = [row["reservation_id"] for row in rows if row["state"] not in _BEFORE_ITS_END]
    quarantined_rows = await connection.fetch(_QUARANTINED, over) if over else ()
    quarantined = {row["reservation_id"] for row in quarantined_rows}
    reservation_by_id = {
        row["reservation_id"]: Reservation.from_row(
            row, quarantined=row["reservation_id"] in quarantined
        )
        for row in rows
    }
    return reservation_by_id, now


async def lock_one(connection: Connection, reservation_id: UUID) -> Reservation | None:
    return (await lock(connection, [reservation_id])).get(reservation_id)


async def insert(
    connection: Connection, commands: Sequence[RequestReservation]
) -> tuple[dict[UUID, QueuedTimes], dict[int, int]]:
    """Store requests in their order; those whose reservation is known already are left out.

    Also counts by priority what was queued before them.
    """
    rows = await connection.fetch(
        _INSERT,
        [command.reservation_id for command in commands],
        [command.namespace for command in commands],
        [command.holder for command in commands],
        [to_json(command.request) for command in commands],
        [command.request.wait_timeout_seconds for command in commands],
        [command.request.lease_ttl_seconds for command in commands],
        [command.request.priority for command in commands],
        [command.requester for command in commands],
    )
    times = {
        row["reservation_id"]: QueuedTimes(row["requested_at"], row["wait_deadline_at"])
        for row in rows
    }
    return times, from_json(rows[0]["queued"], dict[int, int]) if rows else {}


async def waiting_since(
    connection: Connection, arrival: int, waited_seconds: float, limit: int
) -> list[Waiting]:
    """The newest requests after an arrival that have waited for so long, in order of arrival."""
    rows = await connection.fetch(_WAITING_SINCE, arrival, waited_seconds, limit)
    return [Waiting(*row) for row in reversed(rows)]


async def write_forecast(connection: Connection, reservation_id: UUID, at: datetime) -> None:
    """Store when a queued request is expected to start, unless that is stored already."""
    await connection.execute(_FORECAST, reservation_id, at)


async def write_renewed(connection: Writer, renewed: Sequence[Reservation]) -> None:
    """Store state and revision of reservations, and begin their leases anew."""
    await connection.execute(
        _RENEW,
        [reservation.reservation_id for reservation in renewed],
        [reservation.state.value for reservation in renewed],
        [reservation.revision for reservation in renewed],
    )


async def write_releasing(connection: Connection, reservation_id: UUID, reason: str) -> None:
    """Store that a reservation is being released; it has no lease any more."""
    await connection.execute(_BEGIN_RELEASE, reservation_id, reason)


async def write_ended(connection: Writer, ended: Sequence[Reservation]) -> None:
    """Store how reservations have ended."""
    await connection.execute(
        _END,
        [reservation.reservation_id for reservation in ended],
        [reservation.state.value for reservation in ended],
        [reservation.revision for reservation in ended],
        [reservation.ended_at for reservation in ended],
        [reservation.reason for reservation in ended],
        [to_json(reservation.reasons) for reservation in ended],
    )


async def audit_state(connection: Connection, command: Command) -> dict[str, Any] | None:
    """Return what the audit log keeps of the reservation that a command names; None: of none."""
    reservation_id = getattr(command, "reservation_id", None)
    if reservation_id is None:
        return None
    row = await connection.fetchrow(_AUDITED, reservation_id)
    return None if row is None else {**row, "request": from_json(row["request"], dict[str, Any])}


async def epochs(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, int]:
    """Epochs of those of these reservations that are known; 1 of one that was never granted."""
    rows = await connection.fetch(_EPOCHS, list(ids))
    return {row["reservation_id"]: row["epoch"] or 1 for row in rows}


async def ends(connection: Connection, since: datetime) -> dict[UUID, datetime]:
    """Return the end of each reservation that ended since a time."""
    return {row["reservation_id"]: row["ended_at"] for row in await connection.fetch(_ENDS, since)}


async def raise_epoch(connection: Connection, largest: int) -> None:
    """Never again draw an epoch that an executor has already seen."""
    await connection.execute(_RAISE_EPOCH, largest)


async def delete_ended(connection: Connection, days: float, limit: int) -> int:
    """Delete reservations that ended long ago and hold nothing any more; how many."""
    rows = await connection.fetch(_ENDED_LONG_AGO, days, limit)
    ids = [row["reservation_id"] for row in rows]
    for statement in _DELETE:
        await connection.execute(statement, ids)
    return len(ids)
