"""Commands: answered once and remembered by their owner, repeated by their sender until then."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import msgspec

from schemas.base import Command, Event, subject_for, tag_of
from schemas.catalog import COMMANDS
from schemas.errors import Accepted, ErrorCode, Refused, Reply
from shared import tracing
from shared.errors import RefusedError, UnavailableError
from shared.logging import log
from shared.messaging.bus import Bus
from shared.messaging.codec import decode_reply, encode
from shared.messaging.idempotency import body_hash, is_final, replay_or_refuse
from shared.postgres import outbox
from shared.postgres.database import Connection, Database, note_staged
from shared.postgres.outbox import event_columns, stage
from shared.postgres.replication import await_standby
from shared.waiting import wait_for

Apply = Callable[[Connection], Awaitable[Accepted]]
OnReply = Callable[[Connection, Command, Reply], Awaitable[None]]

FIRST_BACKOFF_SECONDS: Final = 0.2
LAST_BACKOFF_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 0.5
BATCH: Final = 100
REQUEST_TIMEOUT_SECONDS: Final = 5.0
OWNER_DOWN: Final = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT})

_TYPES: Final = {tag_of(command): command for command in COMMANDS}


def _insert_sql(first: int) -> str:
    """Return the statement that stores commands, whose first parameter has this number."""
    uuids, lanes, tags, bodies = range(first, first + 4)
    return f"""
INSERT INTO outgoing (command_id, lane, tag, body)
SELECT command_id, lane, tag, body
FROM unnest(${uuids}::uuid[], ${lanes}::text[], ${tags}::text[], ${bodies}::bytea[])
    WITH ORDINALITY AS new (command_id, lane, tag, body, place) ORDER BY place
ON CONFLICT (command_id) DO NOTHING
"""  # numbers of parameters alone


INSERT: Final = _insert_sql(1)
INSERT_ALL: Final = f"WITH staged AS ({outbox.INSERT}) {_insert_sql(4)}"
INSERT_ALL_TRACED: Final = f"WITH staged AS ({outbox.INSERT_TRACED}) {_insert_sql(5)}"


async def once(database: Database, command: Command, apply: Apply) -> Reply:
    """Apply a command at most once and remember its answer in the same transaction.

    The same id with the same body gets the stored answer, with another body a refusal. A
    RefusedError of `apply` rolls its changes back; a final refusal is remembered, a retryable one
    is not. Raises UnavailableError when Postgres is down.
    """
    digest = body_hash(command)
    try:
        async with database.transaction() as connection:
            first = await connection.fetchval(
                "INSERT INTO command (command_id, body_hash) VALUES ($1, $2)"
                " ON CONFLICT DO NOTHING RETURNING true",
                command.command_id,
                digest,
            )
            if not first:
                return await _read_stored_reply(connection, command, digest)
            reply: Reply
            audit = database.command_audit
            state_before = await audit.before(connection, command) if audit is not None else None
            try:
                async with connection.transaction():
                    reply = await apply(connection)
            except RefusedError as error:
                reply = error.as_refused(command.command_id)
                if not is_final(reply):
                    raise
            await connection.execute(
                "UPDATE command SET reply = $2 WHERE command_id = $1",
                command.command_id,
                encode(reply),
            )
            if audit is not None:
                await audit.record(connection, command, state_before, reply)
            return reply
    except RefusedError as error:
        return error.as_refused(command.command_id)


async def _read_stored_reply(connection: Connection, command: Command, digest: bytes) -> Reply:
    [row] = await connection.fetch(
        "SELECT body_hash, reply FROM command WHERE command_id = $1", command.command_id
    )
    await await_standby(connection)
    stored = decode_reply(row["reply"])
    return replay_or_refuse(command.command_id, digest, row["body_hash"], stored)


async def send_later(connection: Connection, *commands: Command) -> None:
    """Store commands for other services; each is repeated with back-off until it is answered.

    Commands to one owner (for node services: one node) are sent in the order they were stored.
    """
    if not commands:
        return
    await connection.execute(INSERT, *_command_columns(commands))
    note_staged(outgoing=True)


async def stage_with_commands(
    connection: Connection, events: Sequence[Event], commands: Sequence[Command]
) -> None:
    """Do as `stage` and `send_later`, both in one statement."""
    if not events or not commands:
        await stage(connection, *events)
        await send_later(connection, *commands)
        return
    statement = INSERT_ALL_TRACED if tracing.is_on() else INSERT_ALL
    await connection.execute(statement, *event_columns(events), *_command_columns(commands))
    note_staged(outbox=True, outgoing=True)


def _command_columns(commands: Sequence[Command]) -> list[list[Any]]:
    for command in commands:
        tracing.traceparent_of(command)  # remembered, for when the sender comes to it
    return [
        [command.command_id for command in commands],
        [_lane_of(command) for command in commands],
        [tag_of(type(command)) for command in commands],
        [encode(command) for command in commands],
    ]


def _lane_of(command: Command) -> str:
    owner = subject_for(command).split(".")[2]
    key = type(command).key_field
    return owner if key is None else f"{owner}.{getattr(command, key)}"


class _ForgottenError(Exception):
    """The reply has been applied: a restarted service and its last life may both have sent."""


@dataclass(slots=True)
class Sender:
    """Sends what `send_later` stored. An owner that does not answer holds up its own lane only."""

    database: Database
    bus: Bus
    on_reply: OnReply
    _busy: set[str] = field(default_factory=set)

    async def run(self) -> None:
        """Send until cancelled. Raises UnavailableError when Postgres is down."""
        try:
            async with asyncio.TaskGroup() as lanes:
                while True:
                    self.database.outgoing_wake.clear()
                    await self._start_due(lanes)
                    await wait_for(self.database.outgoing_wake, IDLE_SECONDS)
        except BaseExceptionGroup as errors:
            # Only the loop itself raises UnavailableError, and then it is the only error.
            raise errors.exceptions[0] from None

    async def _start_due(self, lanes: asyncio.TaskGroup) -> None:
        """Start the lanes that have something due and are not under way already."""
        async with self.database.transaction() as connection:
            rows = await connection.fetch(
                "SELECT id, tag, body, attempts, lane FROM outgoing due"
                " WHERE next_attempt_at <= now() AND lane <> ALL ($2)"
                " AND NOT EXISTS (SELECT 1 FROM outgoing earlier"
                " WHERE earlier.lane = due.lane AND earlier.id < due.id AND earlier.holds_lane"
                " AND earlier.next_attempt_at > now())"
                " ORDER BY lane, id LIMIT $1",
                BATCH,
                list(self._busy),
            )
        for lane, due in groupby(rows, key=lambda row: str(row["lane"])):
            self._busy.add(lane)
            lanes.create_task(self._serve(lane, [tuple(row)[:4] for row in due]))

    async def _serve(self, lane: str, rows: list[tuple[int, str, bytes, int]]) -> None:
        try:
            await self._send_lane(rows)
        except UnavailableError as error:
            log.warning("lane_interrupted", lane=lane, error=str(error))
        finally:
            self._busy.discard(lane)
        self.database.outgoing_wake.set()

    async def _send_lane(self, rows: list[tuple[int, str, bytes, int]]) -> None:
        for row_id, tag, body, attempts in rows:
            try:
                is_answered, holds_lane = await self._send(row_id, tag, body)
            except UnavailableError:
                raise
            except Exception:  # noqa: BLE001  # a message never ends its process
                log.exception("kept_command_failed", tag=tag)
                is_answered, holds_lane = False, False
            if not is_answered:
                await self._postpone(row_id, attempts, holds_lane=holds_lane)
            if holds_lane:
                return

    async def _send(self, row_id: int, tag: str, body: bytes) -> tuple[bool, bool]:
        """Send one command; return whether it was answered for good, and if not, whether later ones
        must wait.
        """
        command = msgspec.msgpack.decode(body, type=_TYPES[tag])
        try:
            reply = await self.bus.request(command, timeout_seconds=REQUEST_TIMEOUT_SECONDS)
        except UnavailableError:
            # The whole lane waits, or a cancel could overtake the request that it is about.
            return False, True
        if isinstance(reply, Refused) and reply.retryable:
            log.info("command_refused_for_now", tag=tag, code=reply.code, message=reply.message)
            return False, reply.code in OWNER_DOWN
        await self._finish(row_id, command, reply)
        return True, False

    async def _finish(self, row_id: int, command: Command, reply: Reply) -> None:
        """Apply the reply, then forget the command; neither, if another sender already has.

        In this order, or two transactions wait for each other: this one for what `on_reply` locks,
        and one that has locked that and stores the same command again for the end of the deletion.
        """
        with suppress(_ForgottenError):
            async with self.database.transaction() as connection:
                await self.on_reply(connection, command, reply)
                if not await connection.fetchval(
                    "DELETE FROM outgoing WHERE id = $1 RETURNING true", row_id
                ):
                    raise _ForgottenError

    async def _postpone(self, row_id: int, attempts: int, *, holds_lane: bool) -> None:
        pause = min(FIRST_BACKOFF_SECONDS * 2 ** min(attempts, 10), LAST_BACKOFF_SECONDS)
        async with self.database.transaction() as connection:
            await connection.execute(
                "UPDATE outgoing SET attempts = attempts + 1, holds_lane = $3,"
                " next_attempt_at = now() + $2 * interval '1 second' WHERE id = $1",
                row_id,
                pause,
                holds_lane,
            )
