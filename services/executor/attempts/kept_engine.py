"""An engine between two runs of its configuration: up, under its reservation, for a while.

Its GPUs stay reserved until the engine is confirmed to have stopped. It belongs to the process that
kept it: the next life of the executor stops what it finds.
"""

import asyncio
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from schemas.executor.attempts import StartExperiment
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import ListReservations, ReservationList
from services.executor.attempts.compile_cache import AttemptCache
from services.executor.attempts.lease_keeper import LeaseKeeper
from services.executor.domain.keeping import is_wanted
from services.executor.guard.client import LeaseGuard
from services.executor.journal import kept_rows
from services.executor.journal.journal import Journal
from services.executor.logs.engine_log import EngineLog
from services.executor.runtimes.runtime import EngineRuntime, Labels, RunningEngine
from shared.clock import utcnow
from shared.errors import RefusedError, UnavailableError
from shared.logging import log
from shared.messaging.bus import Bus
from shared.waiting import cancel_and_wait

ASK_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 1.0


async def has_rival(bus: Bus, node_id: str) -> bool:
    """Return whether a request waits that may be for GPUs of this node; True where that is not
    known.
    """
    query = ListReservations(states=(ReservationState.QUEUED,), limit=1000, names_of=None)
    try:
        answer = await bus.query(query, ReservationList, timeout_seconds=ASK_SECONDS)
    except (RefusedError, UnavailableError):
        return True
    return answer.next_cursor is not None or is_wanted(answer.reservations, node_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpEngine:
    """An engine that answers, and what belongs to it from its start to its end.

    `labels` and `directory` are those of the attempt that started it, in `start_seconds`.
    """

    engine: RunningEngine
    labels: Labels
    base_url: str
    directory: Path
    log: EngineLog
    cache: AttemptCache
    keeper: LeaseKeeper
    start_seconds: float


@dataclass(slots=True, kw_only=True, eq=False)
class KeptEngine:
    """Ends after `seconds`, and before that when it is told to, ends by itself, loses its lease, or
    somebody else waits for its GPUs; unless an attempt goes on with it.

    `command` is the attempt that left it.
    """

    command: StartExperiment
    up: UpEngine
    seconds: float
    runtime: EngineRuntime
    guard: LeaseGuard
    journal: Journal
    bus: Bus
    stop_grace_seconds: float
    kept_until: datetime = field(init=False)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    is_taken: bool = False
    _ends_at: float = field(init=False)
    _stopped: asyncio.Future[str] = field(init=False)

    def __post_init__(self) -> None:
        self._ends_at = time.monotonic() + self.seconds
        self.kept_until = utcnow() + timedelta(seconds=self.seconds)
        self._stopped = asyncio.get_running_loop().create_future()

    def stop(self, reason: str) -> None:
        """Have it ended, for the first reason that is given."""
        if not self._stopped.done():
            self._stopped.set_result(reason)

    def take(self) -> bool:
        """Leave it to the next attempt; False: it is being ended."""
        if self._stopped.done() or time.monotonic() >= self._ends_at:
            return False
        self.is_taken = True
        self._stopped.set_result("taken")
        return True

    async def run(self) -> None:
        """Keep it until an attempt takes it, or end it; return once that is done."""
        reason = await self._until_over()
        if not self.is_taken:
            await self.end(reason)

    async def end(self, reason: str) -> None:
        """Stop it, and release its GPUs once nothing of it runs."""
        renewing = asyncio.create_task(self.up.keeper.until_lost(), name="keep_lease")
        try:
            lease = self.up.keeper.lease
            await self.up.engine.stop(lease.stop_grace_seconds(self.stop_grace_seconds))
            await self.runtime.end(self.up.labels)
            await self.up.cache.release()
        finally:
            await cancel_and_wait(renewing)
        reservation_id = self.command.reservation_id
        self.guard.release(reservation_id)
        await self.journal.transact_when_possible(
            lambda connection: kept_rows.end(connection, reservation_id, reason)
        )
        log.info("kept_engine_ended", attempt_id=str(self.command.attempt_id), reason=reason)
        self.ended.set()

    async def _until_over(self) -> str:
        lease = asyncio.create_task(self.up.keeper.until_lost(), name="keep_lease")
        exited = asyncio.create_task(self.up.engine.until_ended(), name="await_engine_end")
        rival = asyncio.create_task(self._until_rival(), name="await_rival")
        rotating = asyncio.create_task(self.up.log.keep_bounded(), name="keep_log")
        tasks: tuple[asyncio.Task[Any], ...] = (lease, exited, rival, rotating)
        seconds = max(0.0, self._ends_at - time.monotonic())
        try:
            await asyncio.wait(
                (*tasks, self._stopped), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            self.stop("")  # nobody takes it from here on
            await cancel_and_wait(*tasks)
        if reason := self._stopped.result():
            return reason
        if exited.done() and not exited.cancelled():
            return "it ended by itself"
        if lease.done() and not lease.cancelled():
            return "its lease was lost"
        if rival.done() and not rival.cancelled():
            return "another request waits for its GPUs"
        return f"nothing more was measured on it for {self.seconds:g} s"

    async def _until_rival(self) -> None:
        # Nothing tells of a request but the next question.
        while not await has_rival(self.bus, self.command.executor_id):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)
