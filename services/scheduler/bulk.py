"""Requests, renewals and releases, any number of them in a few statements of one transaction.

Rows are locked in one order: reservations by id, devices by number.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import Event
from schemas.errors import Accepted, Reply
from schemas.scheduler import (
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    ReservationActivated,
    ReservationQueued,
    ReservationState,
)
from services.scheduler import checks, ledger, store
from services.scheduler.checks import HELD_ON_LEASE
from services.scheduler.store import Ending, Reservation, Row
from shared.database import Connection, to_json
from shared.errors import RefusedError
from shared.outbox import stage

Command = RequestReservation | RenewReservation | ReleaseReservation

_INSERT: Final = """
INSERT INTO reservation (reservation_id, namespace, holder, request, state, revision, requested_at,
    wait_deadline_at, lease_ttl_seconds, priority)
SELECT new.reservation_id, new.namespace, new.holder, new.request::jsonb, 'queued', 1,
    clock.now, clock.now + new.wait_seconds * interval '1 second', new.lease_ttl_seconds,
    new.priority
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::float8[], $6::float8[], $7::int[])
    WITH ORDINALITY AS new (reservation_id, namespace, holder, request, wait_seconds,
        lease_ttl_seconds, priority, place), (SELECT clock_timestamp() AS now) AS clock
ORDER BY new.place
ON CONFLICT DO NOTHING RETURNING reservation_id, requested_at, wait_deadline_at
"""
_RENEW: Final = """
UPDATE reservation r SET state = new.state, revision = new.revision,
    lease_expires_at = clock_timestamp() + r.lease_ttl_seconds * interval '1 second'
FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS new (reservation_id, state, revision)
WHERE r.reservation_id = new.reservation_id
"""


class Applied(Struct, frozen=True, kw_only=True):
    """Answers by command, and the devices that were given back."""

    replies: dict[UUID, Reply]
    released: Sequence[Row] = ()


async def apply(connection: Connection, commands: Sequence[Command]) -> Applied:
    """Apply commands, each on a reservation of its own; a refused one changes nothing."""
    replies: dict[UUID, Reply] = {}
    released: Sequence[Row] = ()
    requests = [command for command in commands if isinstance(command, RequestReservation)]
    others = [command for command in commands if not isinstance(command, RequestReservation)]
    if requests:
        replies |= await _request(connection, requests)
    if others:
        stored = await store.lock(connection, [command.reservation_id for command in others])
        now = await store.database_now(connection)
        replies |= await _renew(
            connection, [c for c in others if isinstance(c, RenewReservation)], stored, now
        )
        answers, released = await _release(
            connection, [c for c in others if isinstance(c, ReleaseReservation)], stored, now
        )
        replies |= answers
    return Applied(replies=replies, released=released)


async def _request(
    connection: Connection, commands: Sequence[RequestReservation]
) -> dict[UUID, Reply]:
    replies: dict[UUID, Reply] = {}
    sound: list[RequestReservation] = []
    for command in commands:
        try:
            checks.check_request(command)
        except RefusedError as error:
            replies[command.command_id] = error.refused(command.command_id)
        else:
            sound.append(command)
    if not sound:
        return replies
    waiting = await store.waiting_by_priority(connection)
    rows = await connection.fetch(
        _INSERT,
        [command.reservation_id for command in sound],
        [command.namespace for command in sound],
        [command.holder for command in sound],
        [to_json(command.request) for command in sound],
        [command.request.wait_timeout_seconds for command in sound],
        [command.request.lease_ttl_seconds for command in sound],
        [command.request.priority for command in sound],
    )
    inserted = {row["reservation_id"]: row for row in rows}
    events: list[Event] = []
    for command in sound:
        if command.reservation_id in inserted:
            events.append(_queued(command, inserted[command.reservation_id], waiting))
            replies[command.command_id] = Accepted(command_id=command.command_id, revision=1)
    await stage(connection, *events)
    known = [command for command in sound if command.reservation_id not in inserted]
    return replies | await _repeated(connection, known)


def _queued(command: RequestReservation, row: Row, waiting: dict[int, int]) -> ReservationQueued:
    """Last of its priority; the next of this batch comes behind it."""
    priority = command.request.priority
    position = 1 + sum(count for other, count in waiting.items() if other >= priority)
    waiting[priority] = waiting.get(priority, 0) + 1
    return ReservationQueued(
        **ledger.about_new(command, row["requested_at"]),
        request=command.request,
        position=position,
        wait_deadline_at=row["wait_deadline_at"],
    )


async def _repeated(
    connection: Connection, commands: Sequence[RequestReservation]
) -> dict[UUID, Reply]:
    """Requests for reservations that exist: the same again is accepted, anything else is not."""
    if not commands:
        return {}
    stored = await store.lock(connection, [command.reservation_id for command in commands])
    replies: dict[UUID, Reply] = {}
    for command in commands:
        before = stored[command.reservation_id]
        try:
            checks.check_same(before, command)
        except RefusedError as error:
            replies[command.command_id] = error.refused(command.command_id)
        else:
            replies[command.command_id] = Accepted(
                command_id=command.command_id, revision=before.revision
            )
    return replies


async def _renew(
    connection: Connection,
    commands: Sequence[RenewReservation],
    stored: Mapping[UUID, Reservation],
    now: datetime,
) -> dict[UUID, Reply]:
    replies: dict[UUID, Reply] = {}
    renewed: list[Reservation] = []
    events: list[Event] = []
    for command in commands:
        try:
            before = checks.renewable(stored, command, now)
        except RefusedError as error:
            replies[command.command_id] = error.refused(command.command_id)
            continue
        after = before
        if command.activate and before.state is ReservationState.GRANTED:
            after = replace(before, state=ReservationState.ACTIVE, revision=before.revision + 1)
            events.append(
                ReservationActivated(
                    **ledger.about(after, now),
                    epoch=command.epoch,
                    node_id=after.node_id or "",
                )
            )
        renewed.append(after)
        replies[command.command_id] = Accepted(
            command_id=command.command_id,
            revision=after.revision,
            lease_ttl_seconds=after.lease_ttl_seconds,
            epoch=after.epoch,
        )
    if renewed:
        await connection.execute(
            _RENEW,
            [one.reservation_id for one in renewed],
            [one.state.value for one in renewed],
            [one.revision for one in renewed],
        )
        await stage(connection, *events)
    return replies


async def _release(
    connection: Connection,
    commands: Sequence[ReleaseReservation],
    stored: Mapping[UUID, Reservation],
    now: datetime,
) -> tuple[dict[UUID, Reply], Sequence[Row]]:
    replies: dict[UUID, Reply] = {}
    given_back: list[ReleaseReservation] = []
    for command in commands:
        try:
            before = checks.releasable(stored, command)
        except RefusedError as error:
            replies[command.command_id] = error.refused(command.command_id)
            continue
        # Of a gang each node speaks for itself.
        if before.state in HELD_ON_LEASE and command.stopped and len(before.node_ids) == 1:
            given_back.append(command)
        else:
            after = await _release_slowly(connection, command, before, now)
            replies[command.command_id] = _released(command, after)
    if not given_back:
        return replies, ()
    endings = [
        Ending(stored=before, state=ledger.end_of_release(before), reason=command.reason)
        for command in given_back
        for before in (stored[command.reservation_id],)
    ]
    ended = await ledger.end_all(connection, endings, now)
    rows = await store.release_all(connection, [one.reservation_id for one in ended])
    if hosts := [one.reservation_id for one in ended if one.holds_host]:
        await store.release_hosts(connection, hosts)
    for command, after in zip(given_back, ended, strict=True):
        replies[command.command_id] = _released(command, after)
    return replies, rows


async def _release_slowly(
    connection: Connection, command: ReleaseReservation, before: Reservation, now: datetime
) -> Reservation:
    """What is not simply given back: not confirmed stopped yet, or quarantined already."""
    if before.state in HELD_ON_LEASE:
        return await ledger.begin_release(connection, before, command.reason)
    stored = await store.find(connection, before.reservation_id)
    if stored is not None and command.stopped and stored.quarantined and len(stored.node_ids) == 1:
        return await ledger.free(connection, stored, now, "its holder confirmed the stop")
    return before


def _released(command: ReleaseReservation, after: Reservation) -> Accepted:
    return Accepted(command_id=command.command_id, revision=after.revision, epoch=after.epoch)
