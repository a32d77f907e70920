"""Imports what searches compute with, before a transaction needs it."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from schemas.task.strategies import Strategy
from schemas.task.task_file import OptimizationSpec
from services.orchestrator.domain.search import tpe
from services.orchestrator.ledger import task_rows
from shared.postgres.database import Database

_USERS: Final = tuple(strategy for strategy in Strategy if strategy.traits.needs_optuna)


@dataclass(frozen=True, slots=True)
class SearchLibrary:
    """A second of imports, for which no transaction is to hold its locks."""

    database: Database
    requested: asyncio.Event = field(default_factory=asyncio.Event)

    def want_for(self, search: OptimizationSpec) -> None:
        """Begin to import what a new task will need, but for its first proposals."""
        if search.strategy.traits.needs_optuna:
            self.requested.set()

    async def load_for_stored(self) -> None:
        """Import it if a task that goes on needs it."""
        async with self.database.transaction() as connection:
            is_wanted = await task_rows.has_searches(connection, _USERS)
        if is_wanted:
            await asyncio.to_thread(tpe.load)

    async def run(self) -> None:
        """Import it once it is wanted."""
        await self.requested.wait()
        await asyncio.to_thread(tpe.load)
