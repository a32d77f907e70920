"""What is over and old is deleted by the leader, in small batches, so that the tables do not grow
for ever.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from services.scheduler.ledger import change_feed, decision_log
from services.scheduler.ledger.change_feed import CHANGES_SECONDS
from services.scheduler.ledger.leader_election import Leadership
from services.scheduler.ledger.rows import reservation_rows
from shared.logging import log
from shared.postgres.database import Connection, Database

INTERVAL_SECONDS: Final = 15.0
BATCH: Final = 1_000

Delete = Callable[[Connection], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Retention:
    """Ended reservations with what they held, decisions and changes."""

    database: Database
    leadership: Leadership
    reservation_days: float
    decision_days: float
    decisions_kept: int

    async def run(self) -> None:
        """Delete until cancelled, while this process leads.

        Raises UnavailableError while Postgres is away.
        """
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            if self.leadership.term is not None:
                await self.prune()

    async def prune(self) -> None:
        """Delete everything that is old now, each batch in a transaction of its own."""
        await self._delete("changes", lambda c: change_feed.delete(c, CHANGES_SECONDS, BATCH))
        await self._delete(
            "decisions",
            lambda c: decision_log.delete(c, self.decision_days, self.decisions_kept, BATCH),
        )
        await self._delete(
            "reservations", lambda c: reservation_rows.delete_ended(c, self.reservation_days, BATCH)
        )

    async def _delete(self, what: str, delete: Delete) -> None:
        total = 0
        while True:
            async with self.database.transaction() as connection:
                count = await delete(connection)
            total += count
            if count < BATCH:
                break
        if total and what != "changes":
            log.info("pruned", what=what, rows=total)
