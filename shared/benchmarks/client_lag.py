"""How late a process of this host reads what has arrived, which adds to every time."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

from shared.clock import utcnow
from shared.waiting import cancel_and_wait

LAG_TICK_SECONDS: Final = 0.01
_MAX_KEPT: Final = 1_000_000  # almost three hours


async def watch_lag(note: Callable[[float], None]) -> None:
    """Note without end how many seconds too late this process wakes up."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_TICK_SECONDS
        await asyncio.sleep(LAG_TICK_SECONDS)
        note(max(0.0, loop.time() - due))


class LagLog:
    """Lags with their time, beside a load generator that is another process: where this one wakes
    up late, so does that.
    """

    def __init__(self) -> None:
        self._lags: deque[tuple[datetime, float]] = deque(maxlen=_MAX_KEPT)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch meanwhile."""
        watching = asyncio.create_task(watch_lag(self._note))
        try:
            yield
        finally:
            await cancel_and_wait(watching)

    def between(self, begins_at: datetime, ends_at: datetime) -> list[float]:
        return [lag for at, lag in self._lags if begins_at <= at <= ends_at]

    def _note(self, lag: float) -> None:
        self._lags.append((utcnow(), lag))
