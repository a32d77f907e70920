"""The engine as the leader has it, for queries: every scheduler answers them by its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from services.scheduler.domain.model.inputs import QueuedRequest
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from services.scheduler.leader.fleet_reader import FleetReader
from services.scheduler.leader.live_engine import LiveEngine
from services.scheduler.observations.latest_readings import DeviceKey
from shared.postgres.database import Database


@dataclass(frozen=True, slots=True)
class Moment:
    """The engine at one time of the database's clock."""

    now: datetime
    engine: DecisionEngine

    def waiting(self, reservation_id: UUID) -> QueuedRequest | None:
        """Return the waiting request; None if the engine knows no such request that waits."""
        waiting = self.engine.waiting
        return next((entry for entry in waiting if entry.reservation_id == reservation_id), None)


@dataclass(slots=True)
class QueryEngine:
    """Its engine catches up with the ledger at every query; it decides nothing.

    Loading one takes 0.1 s on a fleet of thousands, catching up milliseconds.
    """

    database: Database
    reader: FleetReader
    policy: Policy
    _live: LiveEngine = field(init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changed: set[DeviceKey] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._live = LiveEngine(self.database, self.reader, self.policy)
        self.reader.readings.subscribe(self._on_readings)

    @asynccontextmanager
    async def moment(self) -> AsyncIterator[Moment]:
        """The engine now; other queries wait until the block ends.

        The block leaves it as it was. Raises UnavailableError while Postgres is away.
        """
        async with self._lock:
            try:
                changes = await self._live.catch_up()
                await self.reader.snapshots.wait()
                changed, self._changed = self._changed, set()
                self._live.apply_readings(changed)
                self._live.journal.restart()
                yield Moment(now=changes.now, engine=self._live.engine)
            except BaseException:
                # An interrupted query may have left it in between, or a thread at work on it.
                self._live.discard()
                raise

    def _on_readings(self, changed: frozenset[DeviceKey]) -> None:
        if self._live.is_loaded:
            self._changed |= changed
