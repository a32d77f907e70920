"""Asks the owners about what has been silent, so that a lost event holds nothing up for good."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from schemas.executor import AttemptOutcome, ListRunning, RunningAttempts
from schemas.results import GetSummary, SummaryView
from schemas.scheduler import OPEN_STATES, ReservationState
from schemas.scheduler_views import GetReservation, ReservationView
from services.orchestrator import store
from services.orchestrator.domain.deadlines import is_overdue
from services.orchestrator.domain.records import Attempt
from services.orchestrator.domain.waiting import Grant, ReservationEnd
from services.orchestrator.facts import Facts
from shared.bus import Bus
from shared.clock import utcnow
from shared.database import Database
from shared.errors import RefusedError, UnavailableError
from shared.logging import log

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
class Repair:
    """The scheduler is asked about waiting experiments, executors about running ones, results
    about measured ones.
    """

    database: Database
    bus: Bus
    facts: Facts
    interval_seconds: float
    silent_for: timedelta
    grace: timedelta
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _at_once: bool = True

    async def ask_at_once(self) -> None:
        """Ask about everything now: events may have been lost."""
        self._at_once = True
        self._wake.set()

    async def run(self) -> None:
        """Ask until cancelled. Raises UnavailableError when Postgres is down."""
        while True:
            self._wake.clear()
            silent_for = timedelta(0) if self._at_once else self.silent_for
            self._at_once = False
            await self.sweep(silent_for)
            try:
                async with asyncio.timeout(self.interval_seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def sweep(self, silent_for: timedelta) -> None:
        """Ask once about each attempt that has been silent for that long, and repeat what failed a
        while ago.
        """
        await self.facts.repeat_failed()
        async with self.database.transaction() as connection:
            silent = await store.silent_attempts(connection, silent_for)
        by_executor: dict[str, list[Attempt]] = defaultdict(list)
        for attempt in silent:
            if attempt.outcome is AttemptOutcome.SUCCEEDED:
                await self._ask_results(attempt)
            elif attempt.executor_id is None:
                await self._ask_scheduler(attempt)
            else:
                by_executor[attempt.executor_id].append(attempt)
        for executor_id, attempts in by_executor.items():
            await self._ask_executor(executor_id, attempts)
            for attempt in attempts:
                if is_overdue(attempt, utcnow(), self.grace):
                    await self.facts.apply_overdue(attempt.attempt_id, self.grace)

    async def _ask_scheduler(self, attempt: Attempt) -> None:
        view = await self._reservation(attempt)
        if view is None:
            return
        if view.state in {ReservationState.GRANTED, ReservationState.ACTIVE}:
            if view.epoch is not None and view.node_id is not None:
                await self.facts.apply_grant(attempt.reservation_id, _grant(view, view.epoch))
        elif view.state not in OPEN_STATES:
            await self.facts.apply_end(attempt.reservation_id, _end(view))

    async def _reservation(self, attempt: Attempt) -> ReservationView | None:
        """None if the scheduler does not tell."""
        query = GetReservation(reservation_id=attempt.reservation_id)
        try:
            return await self.bus.query(query, ReservationView)
        except (RefusedError, UnavailableError) as error:
            # Not found is not lost: the request may still be on its way to the scheduler.
            log.info("owner_not_asked", owner="scheduler", error=str(error))
            return None

    async def _ask_executor(self, executor_id: str, attempts: list[Attempt]) -> None:
        try:
            answer = await self.bus.query(ListRunning(executor_id=executor_id), RunningAttempts)
        except (RefusedError, UnavailableError) as error:
            log.info("owner_not_asked", owner=executor_id, error=str(error))
            for attempt in attempts:
                await self._ask_about_stop(attempt)
            return
        running = {found.attempt_id: found for found in answer.attempts}
        for attempt in attempts:
            found = running.get(attempt.attempt_id)
            if found is not None:
                await self.facts.apply_running(found)
                continue
            await self.facts.apply_missing(attempt.attempt_id)
            if attempt.overdue_at is not None:
                await self._ask_about_stop(attempt)

    async def _ask_about_stop(self, attempt: Attempt) -> None:
        """End an attempt whose executor is gone once its devices are free without its release.

        They are free because the node or an administrator confirmed that nothing of it runs. After
        a release the executor knows an outcome, and is waited for unless that is overdue.
        """
        view = await self._reservation(attempt)
        if view is None or view.quarantined:
            return
        is_waited_for = view.state is ReservationState.RELEASED and attempt.overdue_at is None
        if is_waited_for or view.state not in GONE:
            return
        await self.facts.apply_end(attempt.reservation_id, _end(view))
        reason = f"the reservation was {view.state.value}"
        await self.facts.apply_stop_confirmed(
            attempt.attempt_id, f"{reason}: {view.reason}" if view.reason else reason
        )

    async def _ask_results(self, attempt: Attempt) -> None:
        query = GetSummary(experiment_id=attempt.experiment_id)
        try:
            view = await self.bus.query(query, SummaryView)
        except (RefusedError, UnavailableError) as error:
            log.info("owner_not_asked", owner="results", error=str(error))
            return
        await self.facts.apply_summary(view.attempt_id, view.metrics)


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
    )
