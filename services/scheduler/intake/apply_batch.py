"""Requests, renewals and releases, any number of them in a few statements of one transaction."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import Event
from schemas.errors import Accepted, Reply
from schemas.scheduler.reservations import (
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    ReservationState,
)
from services.scheduler.domain.placement.shares import ShareRules
from services.scheduler.intake import validation
from services.scheduler.intake.validation import ANY_SHARES
from services.scheduler.ledger import events, transitions
from services.scheduler.ledger.rows import cluster_rows, holding_rows, reservation_rows
from services.scheduler.ledger.rows.holding_rows import ReleasedDevice
from services.scheduler.ledger.rows.reservation_rows import Ending, Reservation
from services.scheduler.ledger.transitions import HELD_ON_LEASE
from shared.errors import RefusedError
from shared.postgres.database import Connection
from shared.postgres.outbox import stage
from shared.postgres.writes import Writes

Command = RequestReservation | RenewReservation | ReleaseReservation
C = TypeVar("C", bound=Command)
T = TypeVar("T")


class Applied(Struct, frozen=True, kw_only=True):
    """Replies by command, and the devices that were given back."""

    replies: dict[UUID, Reply]
    released: Sequence[ReleasedDevice] = ()


async def apply(
    connection: Connection,
    writes: Writes,
    commands: Sequence[Command],
    rules: ShareRules = ANY_SHARES,
) -> Applied:
    """Apply commands, each on a reservation of its own; a refused one changes nothing.

    The caller sends the writes.
    """
    replies: dict[UUID, Reply] = {}
    released: Sequence[ReleasedDevice] = ()
    requests = [command for command in commands if isinstance(command, RequestReservation)]
    other_commands = [
        command for command in commands if not isinstance(command, RequestReservation)
    ]
    if requests:
        replies |= await _request(connection, writes, requests, rules)
    if other_commands:
        stored, now = await reservation_rows.lock_at(
            connection, [command.reservation_id for command in other_commands]
        )
        replies |= await _renew(
            writes, [c for c in other_commands if isinstance(c, RenewReservation)], stored, now
        )
        answers, released = await _release(
            connection,
            writes,
            [c for c in other_commands if isinstance(c, ReleaseReservation)],
            stored,
            now,
        )
        replies |= answers
    return Applied(replies=replies, released=released)


async def _request(
    connection: Connection,
    writes: Writes,
    commands: Sequence[RequestReservation],
    rules: ShareRules,
) -> dict[UUID, Reply]:
    replies: dict[UUID, Reply] = {}
    check = partial(validation.check_request, rules=rules)
    sound = [command for command, _ in _check(commands, check, replies)]
    if not sound:
        return replies
    inserted, queued = await reservation_rows.insert(connection, sound)
    staged: list[Event] = []
    for command in sound:
        times = inserted.get(command.reservation_id)
        if times is not None:
            position = _next_position(queued, command.request.priority)
            staged.append(events.queued_event(command, times, position))
            replies[command.command_id] = Accepted(command_id=command.command_id, revision=1)
    await stage(writes, *staged)
    repeated = [command for command in sound if command.reservation_id not in inserted]
    return replies | await _answer_repeated(connection, repeated)


def _next_position(queued: dict[int, int], priority: int) -> int:
    """Last of its priority; the next of this batch comes behind it."""
    queued[priority] = queued.get(priority, 0) + 1
    return sum(count for other, count in queued.items() if other >= priority)


async def _answer_repeated(
    connection: Connection, commands: Sequence[RequestReservation]
) -> dict[UUID, Reply]:
    """Requests for reservations that exist: the same again is accepted, anything else is not."""
    if not commands:
        return {}
    stored = await reservation_rows.lock(
        connection, [command.reservation_id for command in commands]
    )
    replies: dict[UUID, Reply] = {}
    for command, stored_reservation in _check(
        commands, lambda c: validation.same(stored, c), replies
    ):
        replies[command.command_id] = Accepted(
            command_id=command.command_id, revision=stored_reservation.revision
        )
    return replies


async def _renew(
    writes: Writes,
    commands: Sequence[RenewReservation],
    stored: Mapping[UUID, Reservation],
    now: datetime,
) -> dict[UUID, Reply]:
    replies: dict[UUID, Reply] = {}
    renewed: list[Reservation] = []
    staged: list[Event] = []
    for command, stored_reservation in _check(
        commands, lambda c: validation.renewable(stored, c, now), replies
    ):
        renewed_reservation = stored_reservation
        if command.activate and stored_reservation.state is ReservationState.GRANTED:
            renewed_reservation = replace(
                stored_reservation,
                state=ReservationState.ACTIVE,
                revision=stored_reservation.revision + 1,
            )
            staged.append(events.activated_event(renewed_reservation, now, command.epoch))
        renewed.append(renewed_reservation)
        replies[command.command_id] = Accepted(
            command_id=command.command_id,
            revision=renewed_reservation.revision,
            lease_ttl_seconds=renewed_reservation.lease_ttl_seconds,
            epoch=renewed_reservation.epoch,
        )
    if renewed:
        await reservation_rows.write_renewed(writes, renewed)
        await stage(writes, *staged)
    return replies


async def _release(
    connection: Connection,
    writes: Writes,
    commands: Sequence[ReleaseReservation],
    stored: Mapping[UUID, Reservation],
    now: datetime,
) -> tuple[dict[UUID, Reply], Sequence[ReleasedDevice]]:
    replies: dict[UUID, Reply] = {}
    given_back: list[ReleaseReservation] = []
    endings: list[Ending] = []
    slow: list[tuple[ReleaseReservation, Reservation]] = []
    checked = _check(commands, lambda c: validation.releasable(stored, c), replies)
    for command, stored_reservation in checked:
        # Of a gang each node confirms its own part.
        if (
            stored_reservation.state in HELD_ON_LEASE
            and command.stopped
            and len(stored_reservation.node_ids) == 1
        ):
            given_back.append(command)
            state = transitions.end_of_release(stored_reservation)
            endings.append(Ending(stored=stored_reservation, state=state, reason=command.reason))
        else:
            slow.append((command, stored_reservation))
    if slow:
        await transitions.lock_nodes_of(
            connection, (stored_reservation for _, stored_reservation in checked)
        )
    for command, stored_reservation in slow:
        released_reservation = await _release_slowly(connection, command, stored_reservation, now)
        replies[command.command_id] = _reply_to_release(command, released_reservation)
    if not given_back:
        return replies, ()
    ended = await transitions.end_all(writes, endings, now)
    released = await holding_rows.release(
        connection, [reservation.reservation_id for reservation in ended]
    )
    if clusters := [
        reservation.reservation_id for reservation in ended if reservation.cluster is not None
    ]:
        await cluster_rows.release(connection, clusters)
    if hosts := [reservation.reservation_id for reservation in ended if reservation.holds_host]:
        await holding_rows.release_hosts(connection, hosts)
    for command, released_reservation in zip(given_back, ended, strict=True):
        replies[command.command_id] = _reply_to_release(command, released_reservation)
    return replies, released


async def _release_slowly(
    connection: Connection, command: ReleaseReservation, stored: Reservation, now: datetime
) -> Reservation:
    """Release what is not simply given back: not confirmed stopped yet, or already quarantined."""
    if stored.state in HELD_ON_LEASE:
        return await transitions.begin_release(connection, stored, command.reason)
    if command.stopped and stored.quarantined and len(stored.node_ids) == 1:
        return await transitions.free(connection, stored, now, "its holder confirmed the stop")
    return stored


def _reply_to_release(command: ReleaseReservation, released: Reservation) -> Accepted:
    return Accepted(command_id=command.command_id, revision=released.revision, epoch=released.epoch)


def _check(
    commands: Iterable[C], check: Callable[[C], T], replies: dict[UUID, Reply]
) -> list[tuple[C, T]]:
    """The commands that pass, each with what the check returned; the others are refused."""
    passed = []
    for command in commands:
        try:
            passed.append((command, check(command)))
        except RefusedError as error:
            replies[command.command_id] = error.as_refused(command.command_id)
    return passed
