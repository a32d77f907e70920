"""Queries the owners of what has been silent, so that a lost event holds nothing up for good."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from schemas.executor.attempts import AttemptOutcome
from schemas.executor.running import ListRunning, RunningAttempts
from schemas.results.measurements import GetSummary, SummaryView
from schemas.scheduler.reservations import HOLDING_STATES, OPEN_STATES, ReservationState
from schemas.scheduler.views import GetReservation, ReservationView
from services.orchestrator.domain.lifecycle.deadlines import is_overdue
from services.orchestrator.domain.lifecycle.waiting import Grant, ReservationEnd
from services.orchestrator.domain.records import Attempt
from services.orchestrator.event_handlers import EventHandlers
from services.orchestrator.ledger import attempt_rows
from shared.clock import utcnow
from shared.errors import RefusedError, UnavailableError
from shared.gpu.stats import peak_memory_mb
from shared.logging import log
from shared.messaging.bus import Bus
from shared.postgres.database import Database
from shared.waiting import wait_for

GONE: Final = frozenset(
    {
        ReservationState.EXPIRED,
        ReservationState.LOST,
        ReservationState.PREEMPTED,
        ReservationState.CANCELLED,
        ReservationState.RELEASED,
    }
)


@dataclass(slots=True)
class Resync:
    """Queries the scheduler about waiting experiments, executors about running ones, results about
    measured ones.
    """

    database: Database
    bus: Bus
    handlers: EventHandlers
    interval_seconds: float
    silent_for: timedelta
    grace: timedelta
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _at_once: bool = True

    async def resync_now(self) -> None:
        """Query everything now: events may have been lost."""
        self._at_once = True
        self._wake.set()

    async def run(self) -> None:
        """Query until cancelled. Raises UnavailableError when Postgres is down."""
        while True:
            self._wake.clear()
            silent_for = timedelta(0) if self._at_once else self.silent_for
            self._at_once = False
            await self.sweep(silent_for)
            await wait_for(self._wake, self.interval_seconds)

    async def sweep(self, silent_for: timedelta) -> None:
        """Query the owner of each attempt that has been silent for that long; go on with tasks that
        stand still.
        """
        await self.handlers.advance_due()
        async with self.database.transaction() as connection:
            silent = await attempt_rows.silent(connection, silent_for)
        by_executor: dict[str, list[Attempt]] = defaultdict(list)
        for attempt in silent:
            if attempt.outcome is AttemptOutcome.SUCCEEDED:
                await self._query_results(attempt)
            elif attempt.executor_id is None:
                if attempt.has_reservation:
                    await self._query_scheduler(attempt)
            else:
                by_executor[attempt.executor_id].append(attempt)
        for executor_id, attempts in by_executor.items():
            await self._query_executor(executor_id, attempts)
            for attempt in attempts:
                if is_overdue(attempt, utcnow(), self.grace):
                    await self.handlers.apply_overdue(attempt.attempt_id, self.grace)

    async def _query_scheduler(self, attempt: Attempt) -> None:
        view = await self._reservation(attempt)
        if view is None:
            return
        if view.state in HOLDING_STATES:
            if view.epoch is not None and view.node_id is not None:
                await self.handlers.apply_grant(attempt.reservation_id, _grant(view, view.epoch))
        elif view.state not in OPEN_STATES:
            await self.handlers.apply_end(attempt.reservation_id, _end(view))

    async def _reservation(self, attempt: Attempt) -> ReservationView | None:
        """Return the scheduler's answer; None without one."""
        query = GetReservation(reservation_id=attempt.reservation_id)
        try:
            return await self.bus.query(query, ReservationView)
        except (RefusedError, UnavailableError) as error:
            # Not found is not lost: the request may still be on its way to the scheduler.
            log.info("owner_unreachable", owner="scheduler", error=str(error))
            return None

    async def _query_executor(self, executor_id: str, attempts: list[Attempt]) -> None:
        try:
            answer = await self.bus.query(ListRunning(executor_id=executor_id), RunningAttempts)
        except (RefusedError, UnavailableError) as error:
            log.info("owner_unreachable", owner=executor_id, error=str(error))
            for attempt in attempts:
                await self._check_stopped(attempt)
            return
        running = {
            running_attempt.attempt_id: running_attempt for running_attempt in answer.attempts
        }
        for attempt in attempts:
            running_attempt = running.get(attempt.attempt_id)
            if running_attempt is not None:
                await self.handlers.apply_running(running_attempt)
                continue
            await self.handlers.apply_missing(attempt.attempt_id)
            if attempt.overdue_at is not None:
                await self._check_stopped(attempt)

    async def _check_stopped(self, attempt: Attempt) -> None:
        """End an attempt whose executor is gone once its devices are free without its release.

        They are free because the node or an administrator confirmed that nothing of it runs. After
        a release the executor knows an outcome, and is waited for unless that is overdue.
        """
        if not attempt.has_reservation:
            await self._check_overdue_at_server(attempt)
            return
        view = await self._reservation(attempt)
        if view is None or view.quarantined:
            return
        is_waited_for = view.state is ReservationState.RELEASED and attempt.overdue_at is None
        if is_waited_for or view.state not in GONE:
            return
        await self.handlers.apply_end(attempt.reservation_id, _end(view))
        reason = f"the reservation was {view.state.value}"
        await self.handlers.apply_stop_confirmed(
            attempt.attempt_id, f"{reason}: {view.reason}" if view.reason else reason
        )

    async def _check_overdue_at_server(self, attempt: Attempt) -> None:
        """End an attempt at a server that runs already, once its stop had time to be obeyed: the
        load ends with its executor, or by the executor's own deadline.
        """
        if attempt.overdue_at is not None and utcnow() >= attempt.overdue_at + self.grace:
            reason = f"{attempt.executor_id} does not answer how it ended"
            await self.handlers.apply_stop_confirmed(attempt.attempt_id, reason)

    async def _query_results(self, attempt: Attempt) -> None:
        query = GetSummary(experiment_id=attempt.experiment_id)
        try:
            view = await self.bus.query(query, SummaryView)
        except (RefusedError, UnavailableError) as error:
            log.info("owner_unreachable", owner="results", error=str(error))
            return
        peak = peak_memory_mb(view.whole_run) if view.whole_run is not None else None
        await self.handlers.apply_summary(
            view.attempt_id, view.metrics, peak, view.gpu_monitoring, view.driver_versions
        )


def _end(view: ReservationView) -> ReservationEnd:
    return ReservationEnd(
        revision=view.revision,
        state=view.state,
        was_granted=view.granted_at is not None,
        reason=view.reason,
        reasons=view.reasons,
    )


def _grant(view: ReservationView, epoch: int) -> Grant:
    return Grant(
        revision=view.revision,
        epoch=epoch,
        node_id=view.node_id or "",
        devices=view.devices,
        lease_ttl_seconds=view.request.lease_ttl_seconds,
        cluster=view.cluster,
    )
