"""Commands that come together are committed together, each answered after the commit.

While one transaction is under way the next commands gather; a few statements serve all of them.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import msgspec

from schemas.errors import RETRYABLE, Accepted, ErrorCode, Refused, Reply
from schemas.scheduler import ReleaseReservation, RenewReservation, RequestReservation
from services.scheduler import bulk
from services.scheduler.store import Row
from shared.codec import encode
from shared.commands import body_hash
from shared.database import Connection, Database
from shared.errors import StewardError, UnavailableError
from shared.logging import log

AT_ONCE: Final = 2  # transactions
LARGEST: Final = 64  # commands in one
TRIES: Final = 3
SERVED_KEPT: Final = 4_096

BulkCommand = RequestReservation | RenewReservation | ReleaseReservation

_KNOWN: Final = "SELECT command_id, body_hash, reply FROM command WHERE command_id = ANY($1)"
_REMEMBER: Final = """
INSERT INTO command (command_id, body_hash, reply)
SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::bytea[]) ON CONFLICT DO NOTHING
RETURNING command_id
"""
_reply_decoder = msgspec.msgpack.Decoder(Accepted | Refused)


class CameTwice(StewardError):
    """The same command was being applied elsewhere at the same time; nothing was committed."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A command, and who waits for its answer."""

    command: BulkCommand
    answer: "asyncio.Future[Reply]"


@dataclass(slots=True)
class Intake:
    """Applies each command at most once and remembers its answer in the same transaction.

    The same id with the same body gets the stored answer, with another body a refusal.
    `on_released` is told of devices that were given back, `on_change` of every commit.
    """

    database: Database
    on_change: Callable[[], None]
    on_released: Callable[[Sequence[Row]], None]
    _waiting: list[_Waiting] = field(default_factory=list)
    _served: dict[UUID, None] = field(default_factory=dict)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    def has_served(self, reservation_id: UUID | None) -> bool:
        """Whether one of the last commands was on this reservation."""
        return reservation_id in self._served

    async def submit(self, command: BulkCommand) -> Reply:
        """The command's answer, after its commit. Raises UnavailableError without Postgres."""
        mine = _Waiting(command, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        try:
            # Whoever gets a turn serves all who wait; the others find their answer under way.
            async with self._turns:
                while mine in self._waiting:
                    await self._serve(self._take())
            return await mine.answer
        finally:
            if mine in self._waiting:
                self._waiting.remove(mine)

    def _take(self) -> list[_Waiting]:
        """Who waits; of one reservation or one id only the earliest."""
        taken: list[_Waiting] = []
        ids: set[UUID] = set()
        for one in list(self._waiting):
            own = {one.command.command_id, one.command.reservation_id}
            if ids.isdisjoint(own) and len(taken) < LARGEST:
                taken.append(one)
                self._waiting.remove(one)
            ids |= own
        return taken

    async def _serve(self, batch: list[_Waiting]) -> None:
        try:
            try:
                await self._answer(batch)
            except UnavailableError:
                raise
            except Exception as error:
                if len(batch) == 1 and not isinstance(error, CameTwice):
                    raise
                log.info("batch_taken_apart", commands=len(batch))
                for one in batch:
                    await self._serve_alone(one)
        except BaseException as error:
            for one in batch:
                if not one.answer.done():
                    one.answer.set_exception(_told(error))
            if not isinstance(error, Exception):
                raise

    async def _serve_alone(self, one: _Waiting) -> None:
        for left in reversed(range(TRIES)):
            try:
                await self._answer([one])
                return
            except CameTwice:
                if not left:
                    raise
            except UnavailableError:
                raise
            except Exception as error:  # noqa: BLE001  # one's error is not the others'
                one.answer.set_exception(error)
                return

    async def _answer(self, batch: list[_Waiting]) -> None:
        commands = [one.command for one in batch]
        async with self.database.transaction() as connection:
            hashes = {command.command_id: body_hash(command) for command in commands}
            replies = await _known(connection, hashes)
            new = [command for command in commands if command.command_id not in replies]
            applied = await bulk.apply(connection, new)
            await _remember(connection, applied.replies, hashes)
        self.on_released(applied.released)
        self._note_served(new)
        if new:
            self.on_change()
        replies |= applied.replies
        for one in batch:
            if not one.answer.done():
                one.answer.set_result(replies[one.command.command_id])

    def _note_served(self, commands: Sequence[BulkCommand]) -> None:
        self._served |= dict.fromkeys(command.reservation_id for command in commands)
        while len(self._served) > SERVED_KEPT:
            del self._served[next(iter(self._served))]


async def _known(connection: Connection, hashes: dict[UUID, bytes]) -> dict[UUID, Reply]:
    """Answers to commands that came before."""
    replies: dict[UUID, Reply] = {}
    for row in await connection.fetch(_KNOWN, list(hashes)):
        command_id = row["command_id"]
        if row["body_hash"] == hashes[command_id]:
            replies[command_id] = _reply_decoder.decode(row["reply"])
        else:
            replies[command_id] = Refused(
                code=ErrorCode.COMMAND_ID_REUSED,
                message=f"command {command_id} came before with another body",
                command_id=command_id,
                path="$.command_id",
            )
    return replies


async def _remember(
    connection: Connection, replies: dict[UUID, Reply], hashes: dict[UUID, bytes]
) -> None:
    final = {i: reply for i, reply in replies.items() if not _is_retryable(reply)}
    if not final:
        return
    kept = await connection.fetch(
        _REMEMBER, list(final), [hashes[i] for i in final], [encode(r) for r in final.values()]
    )
    if len(kept) < len(final):
        raise CameTwice(f"{len(final) - len(kept)} commands were applied elsewhere")


def _is_retryable(reply: Reply) -> bool:
    return isinstance(reply, Refused) and reply.code in RETRYABLE


def _told(error: BaseException) -> Exception:
    if isinstance(error, Exception):
        return error
    return UnavailableError("the scheduler is stopping")
