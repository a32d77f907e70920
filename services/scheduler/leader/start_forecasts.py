"""When requests that wait are expected to start, stored once for each: compared with its grant."""

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from services.scheduler.domain.advice.expected_start import forecast_start
from services.scheduler.leader.query_engine import QueryEngine
from services.scheduler.ledger.leader_election import Leadership
from services.scheduler.ledger.rows import reservation_rows
from services.scheduler.ledger.rows.reservation_rows import Waiting
from shared.postgres.database import Database

WAITED_SECONDS: Final = 1.0  # what is granted by then needs no forecast
LATEST: Final = timedelta(seconds=60)
MAX_AT_ONCE: Final = 100
PAUSE_RATIO: Final = 20  # for each second of work: a long queue is sampled, and slows no decision


@dataclass(slots=True)
class StartForecasts:
    """Forecasts while this process leads, newest requests first where there are too many."""

    database: Database
    leadership: Leadership
    query_engine: QueryEngine
    _arrival: int = 0

    async def run(self) -> None:
        """Forecast until cancelled. Raises UnavailableError while Postgres is away."""
        while True:
            await asyncio.sleep(WAITED_SECONDS)
            if self.leadership.term is None:
                continue
            async with self.database.statements() as connection:
                waiting_requests = await reservation_rows.waiting_since(
                    connection, self._arrival, WAITED_SECONDS, MAX_AT_ONCE
                )
            for waiting in waiting_requests:
                started_at = time.monotonic()
                await self._forecast(waiting)
                self._arrival = waiting.arrival
                await asyncio.sleep(PAUSE_RATIO * (time.monotonic() - started_at))

    async def _forecast(self, waiting: Waiting) -> None:
        async with self.query_engine.moment() as moment:
            if moment.now > waiting.requested_at + LATEST:
                return
            if (entry := moment.waiting(waiting.reservation_id)) is None:
                return
            start = await asyncio.to_thread(forecast_start, moment.engine, entry, moment.now)
        if start is not None:
            async with self.database.transaction() as connection:
                await reservation_rows.write_forecast(connection, waiting.reservation_id, start.at)
