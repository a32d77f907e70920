"""Wakes the decision loop when the ledger changes: Postgres notifies with the commit."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from services.scheduler.ledger.session import session
from shared.postgres.database import Database

CHANNEL: Final = "gpusteward_ledger"  # as in the trigger function `note_change`
CHECK_SECONDS: Final = 5.0

_ALIVE: Final = "SELECT 1"


@dataclass(frozen=True, slots=True)
class ChangeListener:
    """Listens on a connection of its own: one of the pool is reset when it is given back.

    A notification means only that something has changed; what, the next poll reads. None is sent to
    a connection that is down, so every new one counts as a change. The decision loop also polls
    every second: a notification that is lost costs time and nothing else.
    """

    database: Database
    on_change: Callable[[], None]

    async def run(self) -> None:
        """Listen until cancelled. Raises UnavailableError while Postgres is away."""
        async with session(self.database.dsn, "changes") as connection:
            await connection.add_listener(CHANNEL, lambda *_: self.on_change())
            self.on_change()
            while True:
                await asyncio.sleep(CHECK_SECONDS)
                await connection.execute(_ALIVE, timeout=CHECK_SECONDS)
