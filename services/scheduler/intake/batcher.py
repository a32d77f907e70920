"""Commands that come together are committed together, each answered after the commit.

While one transaction is under way the next commands gather; a few statements serve all of them.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

from schemas.errors import Reply
from schemas.scheduler.reservations import RenewReservation, RequestReservation
from services.scheduler.domain.placement.shares import ShareRules
from services.scheduler.intake import apply_batch
from services.scheduler.intake.apply_batch import Command
from services.scheduler.intake.validation import ANY_SHARES
from services.scheduler.ledger import command_replies
from services.scheduler.ledger.command_replies import AppliedElsewhereError
from services.scheduler.ledger.rows.holding_rows import ReleasedDevice
from shared.disk import require_room
from shared.errors import UnavailableError
from shared.logging import log
from shared.messaging.idempotency import body_hash, is_final
from shared.postgres.database import Database
from shared.postgres.writes import Writes

CONCURRENT_BATCHES: Final = 2  # transactions
MAX_BATCH: Final = 64  # commands in one
TRIES: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """A command, and where its reply goes."""

    command: Command
    reply: "asyncio.Future[Reply]"


@dataclass(slots=True)
class CommandBatcher:
    """Applies each command at most once and stores its reply in the same transaction.

    The same id with the same body gets the stored reply, with another body a refusal.
    `on_released` is called with devices that were given back, after the commit.
    """

    database: Database
    on_released: Callable[[Sequence[ReleasedDevice]], None]
    data_dir: Path
    share_rules: ShareRules = ANY_SHARES
    _pending: list[_Pending] = field(default_factory=list)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_BATCHES))

    async def submit_request(self, command: RequestReservation) -> Reply:
        """Submit as `submit` does; refused where the disk is full, so that renewals still find
        room.
        """
        require_room(self.data_dir)
        return await self.submit(command)

    async def submit(self, command: Command) -> Reply:
        """The command's reply, after its commit. Raises UnavailableError without Postgres."""
        mine = _Pending(command, asyncio.get_running_loop().create_future())
        self._pending.append(mine)
        try:
            # Each caller that gets a turn applies all that is pending; the others, when theirs
            # comes, find their reply under way.
            async with self._turns:
                while mine in self._pending:
                    await self._apply(self._next_batch())
            return await mine.reply
        finally:
            if mine in self._pending:
                self._pending.remove(mine)

    def _next_batch(self) -> list[_Pending]:
        """Return the pending commands; of one reservation or one id only the earliest."""
        batch: list[_Pending] = []
        ids: set[UUID] = set()
        for item in list(self._pending):
            item_keys = {item.command.command_id, item.command.reservation_id}
            if ids.isdisjoint(item_keys) and len(batch) < MAX_BATCH:
                batch.append(item)
                self._pending.remove(item)
            ids |= item_keys
        return batch

    async def _apply(self, batch: list[_Pending]) -> None:
        try:
            try:
                await self._commit(batch)
            except UnavailableError:
                raise
            except Exception as error:
                if len(batch) == 1 and not isinstance(error, AppliedElsewhereError):
                    raise
                log.info("batch_split", commands=len(batch))
                for item in batch:
                    await self._apply_alone(item)
        except BaseException as error:
            stopping = UnavailableError("the scheduler is stopping")
            for item in batch:
                if not item.reply.done():
                    item.reply.set_exception(error if isinstance(error, Exception) else stopping)
            if not isinstance(error, Exception):
                raise

    async def _apply_alone(self, item: _Pending) -> None:
        for tries_left in reversed(range(TRIES)):
            try:
                await self._commit([item])
                return
            except AppliedElsewhereError:
                if not tries_left:
                    raise
            except UnavailableError:
                raise
            except Exception as error:  # noqa: BLE001  # one's error is not the others'
                item.reply.set_exception(error)
                return

    async def _commit(self, batch: list[_Pending]) -> None:
        commands = [item.command for item in batch]
        async with self.database.transaction() as connection:
            hashes = {command.command_id: body_hash(command) for command in commands}
            replies = await command_replies.find(connection, hashes)
            new = [command for command in commands if command.command_id not in replies]
            audit = self.database.command_audit
            recorded = [
                (command, await audit.before(connection, command))
                for command in new
                if audit is not None and not isinstance(command, RenewReservation)
            ]
            writes = Writes()
            applied = await apply_batch.apply(connection, writes, new, self.share_rules)
            await command_replies.insert(connection, writes, applied.replies, hashes)
            for command, state_before in recorded:
                reply = applied.replies[command.command_id]
                if audit is not None and is_final(reply):
                    await audit.record(connection, command, state_before, reply)
        self.on_released(applied.released)
        replies |= applied.replies
        for item in batch:
            if not item.reply.done():
                item.reply.set_result(replies[item.command.command_id])
