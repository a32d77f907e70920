"""Events and answers of other services, applied to the experiment that they are about.

Seen twice they change nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from schemas.base import Command
from schemas.errors import Refused, Reply
from schemas.executor.attempts import (
    AttemptFinished,
    AttemptPhaseChanged,
    AttemptStarted,
    ExecutorReported,
    StartExperiment,
)
from schemas.executor.running import RunningAttempt
from schemas.gpus.device_grant import DeviceGrant
from schemas.orchestrator.experiments import ExperimentState
from schemas.results.measurements import ExperimentSummarized, GpuMonitoring
from schemas.scheduler.reservations import (
    RESERVATION_ENDS,
    RequestReservation,
    ReservationEnded,
    ReservationGranted,
    ReservationRejected,
    ReservationState,
    ReservationTimedOut,
)
from schemas.task.benchmark import BenchmarkMetrics
from schemas.task.strategies import Strategy
from services.orchestrator.domain.lifecycle import deadlines, endpoints, running, waiting
from services.orchestrator.domain.lifecycle.waiting import Grant, ReservationEnd
from services.orchestrator.domain.records import Attempt, Decision, Experiment, Task
from services.orchestrator.ledger import attempt_rows, offer_rows, task_rows
from services.orchestrator.ledger.attempt_rows import Subject
from services.orchestrator.proposal_rounds import Proposals, run_with_proposals
from services.orchestrator.task_progress import Progress
from shared.clock import utcnow
from shared.errors import UnavailableError
from shared.logging import log
from shared.messaging.bus import Route, event_route
from shared.postgres.database import Connection, Database

LockSubject = Callable[[Connection], Awaitable[Subject | None]]
Decide = Callable[[Task, Experiment, Attempt], Awaitable[Decision | None] | Decision | None]
WITHOUT_PROPOSALS: Final = Proposals(is_open=False)


@dataclass(frozen=True, slots=True)
class EventHandlers:
    """`on_*` take an event; `apply_*` what an event or the answer to a query reports.

    Reservations and attempts of others than the orchestrator are ignored. `lease_wake` is set when
    a grant has been stored whose lease the orchestrator has to renew.
    """

    database: Database
    progress: Progress
    lease_wake: asyncio.Event
    first_report: asyncio.Event

    async def on_granted(self, event: ReservationGranted) -> None:
        """GPUs for a waiting experiment."""
        grant = Grant(
            revision=event.revision,
            epoch=event.epoch,
            node_id=event.node_id,
            devices=event.devices,
            lease_ttl_seconds=event.lease_ttl_seconds,
            cluster=event.cluster,
        )
        await self.apply_grant(event.reservation_id, grant)

    async def on_ended(self, event: ReservationEnded) -> None:
        reasons = (
            event.reasons if isinstance(event, ReservationRejected | ReservationTimedOut) else ()
        )
        end = ReservationEnd(
            revision=event.revision,
            state=event.state,
            was_granted=event.epoch is not None,
            reason=event.reason,
            reasons=reasons,
        )
        await self.apply_end(event.reservation_id, end)

    async def on_attempt(
        self, event: AttemptStarted | AttemptPhaseChanged | AttemptFinished
    ) -> None:
        """The progress of an attempt on its executor."""
        await self._apply(
            _by_attempt(event.attempt_id),
            lambda t, e, a: running.on_attempt_event(t, e, a, event, utcnow()),
        )

    async def on_summarized(self, event: ExperimentSummarized) -> None:
        """The measurements are stored."""
        await self.apply_summary(
            event.attempt_id,
            event.metrics,
            event.peak_memory_mb,
            event.gpu_monitoring,
            event.driver_versions,
        )

    async def on_reported(self, event: ExecutorReported) -> None:
        """Store what an executor offers."""
        async with self.database.transaction() as connection:
            await offer_rows.save_offer(connection, event, utcnow())
        self.first_report.set()

    async def on_reply(self, connection: Connection, command: Command, reply: Reply) -> None:
        """Apply the answer to a durable command, in the transaction that forgets the command.

        That one holds no lock for a proposal: a search that wants one is postponed.
        """
        match command, reply:
            case RequestReservation(), Refused():
                await self._decide(
                    connection,
                    _by_reservation(command.reservation_id),
                    lambda _, e, a: waiting.on_request_refused(e, a, reply, utcnow()),
                    WITHOUT_PROPOSALS,
                )
            case StartExperiment(), _:
                await self._decide(
                    connection,
                    _by_attempt(command.attempt_id),
                    lambda t, e, a: running.on_start_answered(t, e, a, reply, utcnow()),
                    WITHOUT_PROPOSALS,
                )
            case _, Refused():
                log.info(
                    "command_refused",
                    command=type(command).__name__,
                    code=reply.code,
                    message=reply.message,
                )

    async def advance_due(self) -> None:
        """The pause after some failed attempts may be over, or an executor back for a search."""
        async with self.database.transaction() as connection:
            task_ids = await self.progress.tasks_to_advance(connection)
        await self._advance_all(task_ids)

    async def postpone_searches(self) -> None:
        """Take every search for postponed: the process before this one may have ended with it."""
        strategies = [strategy for strategy in Strategy if strategy.traits.is_search]
        async with self.database.transaction() as connection:
            task_ids = await task_rows.find_searches(connection, strategies)
        for task_id in task_ids:
            self.progress.postponed.add(task_id)

    async def run_postponed(self) -> None:
        """Go on with postponed tasks until cancelled. Raises UnavailableError without Postgres."""
        postponed = self.progress.postponed
        while True:
            await postponed.wake.wait()
            task_ids = postponed.take()
            try:
                await self._advance_all(task_ids)
            except UnavailableError:
                postponed.task_ids.update(task_ids)
                postponed.wake.set()
                raise

    async def _advance_all(self, task_ids: Iterable[UUID]) -> None:
        for task_id in task_ids:
            await run_with_proposals(partial(self._advance, task_id))

    async def _advance(self, task_id: UUID, proposals: Proposals) -> None:
        async with self.database.transaction() as connection:
            # It may have ended, and been deleted, since it was found.
            task = await task_rows.lock(connection, task_id)
            if task is not None:
                await self.progress.advance(connection, task, proposals)

    async def apply_grant(self, reservation_id: UUID, grant: Grant) -> None:
        await self._apply(
            _by_reservation(reservation_id),
            lambda t, e, a: waiting.on_grant(t, e, a, grant, utcnow()),
        )
        self.lease_wake.set()

    async def apply_endpoint_start(
        self, attempt_id: UUID, executor_id: str, devices: tuple[DeviceGrant, ...]
    ) -> None:
        """Start a waiting attempt at a server that runs already."""
        await self._apply(
            _by_attempt(attempt_id),
            lambda t, e, a: endpoints.start(t, e, a, executor_id, devices, utcnow()),
        )

    async def apply_endpoint_failed(self, attempt_id: UUID, reason: str) -> None:
        """Fail an attempt that waited for too long for an executor."""
        await self._apply(
            _by_attempt(attempt_id), lambda _, e, a: waiting.fail(e, a, reason, utcnow())
        )

    async def apply_end(self, reservation_id: UUID, end: ReservationEnd) -> None:
        async def transact(proposals: Proposals) -> None:
            async with self.database.transaction() as connection:

                async def decide(
                    task: Task, experiment: Experiment, attempt: Attempt
                ) -> Decision | None:
                    # What was taken from it may be away for longer than it would wait for the
                    # first.
                    has_held_gpus = task.was_preempted or await attempt_rows.did_task_hold_gpus(
                        connection, attempt
                    )
                    decision = waiting.on_reservation_end(
                        experiment, attempt, end, utcnow(), task_held_gpus=has_held_gpus
                    )
                    if decision is None or end.state is not ReservationState.PREEMPTED:
                        return decision
                    return replace(decision, task=replace(task, was_preempted=True))

                await self._decide(connection, _by_reservation(reservation_id), decide, proposals)

        await run_with_proposals(transact)

    async def apply_running(self, running_attempt: RunningAttempt) -> None:
        """Note an attempt that its executor has under way."""

        def decide(task: Task, experiment: Experiment, attempt: Attempt) -> Decision | None:
            if attempt.closed_at is not None:
                return None
            phase = running_attempt.phase.value
            return running.on_attempt_seen(task, experiment, attempt, phase, None, utcnow())

        await self._apply(_by_attempt(running_attempt.attempt_id), decide)

    async def apply_missing(self, attempt_id: UUID) -> None:
        """Note that an executor has nothing of this attempt under way."""
        await self._apply(_by_attempt(attempt_id), running.on_attempt_missing)

    async def apply_overdue(self, attempt_id: UUID, grace: timedelta) -> None:
        """This attempt should have ended more than `grace` ago."""

        def decide(_: Task, experiment: Experiment, attempt: Attempt) -> Decision | None:
            decision = deadlines.on_overdue(experiment, attempt, utcnow(), grace)
            if decision is None or attempt.overdue_at is not None:
                return decision
            stop = running.stop(experiment, attempt, "it takes longer than the task allows")
            return replace(decision, commands=stop.commands)

        await self._apply(_by_attempt(attempt_id), decide)

    async def apply_stop_confirmed(self, attempt_id: UUID, reason: str) -> None:
        """End an attempt that runs no more and whose executor does not answer how it ended."""
        await self._apply(
            _by_attempt(attempt_id),
            lambda t, e, a: running.on_stop_confirmed(t, e, a, reason, utcnow()),
        )

    async def apply_summary(
        self,
        attempt_id: UUID,
        metrics: BenchmarkMetrics,
        peak_memory_mb: int | None,
        monitoring: GpuMonitoring,
        driver_versions: Mapping[str, str],
    ) -> None:
        await self._apply(
            _by_attempt(attempt_id),
            lambda t, e, a: running.on_summary(
                t, e, a, metrics, utcnow(), peak_memory_mb, monitoring, driver_versions
            ),
        )

    async def _apply(self, lock: LockSubject, decide: Decide) -> None:
        async def transact(proposals: Proposals) -> None:
            async with self.database.transaction() as connection:
                await self._decide(connection, lock, decide, proposals)

        await run_with_proposals(transact)

    async def _decide(
        self, connection: Connection, lock: LockSubject, decide: Decide, proposals: Proposals
    ) -> None:
        subject = await lock(connection)
        if subject is None:
            return
        task, experiment, attempt = subject
        decision = decide(task, experiment, attempt)
        if isinstance(decision, Awaitable):
            decision = await decision
        if decision is None:
            return
        state = decision.experiment.state
        if state is experiment.state and not _closes(attempt, decision):
            await self.progress.write(connection, None, [decision])
            return
        is_best_open = state is not experiment.state and state is ExperimentState.SUCCEEDED
        await self.progress.advance(
            connection, task, proposals, [decision], is_best_open=is_best_open
        )


def _closes(attempt: Attempt, decision: Decision) -> bool:
    return (
        attempt.closed_at is None
        and decision.attempt is not None
        and decision.attempt.closed_at is not None
    )


def _by_reservation(reservation_id: UUID) -> LockSubject:
    return partial(attempt_rows.lock_by_reservation, reservation_id=reservation_id)


def _by_attempt(attempt_id: UUID) -> LockSubject:
    return partial(attempt_rows.lock_by_attempt, attempt_id=attempt_id)


def event_routes(handlers: EventHandlers) -> list[Route]:
    """The durable consumers."""
    return [
        event_route(handlers.on_granted, ReservationGranted, durable="orchestrator_on_granted"),
        event_route(handlers.on_ended, *RESERVATION_ENDS, durable="orchestrator_on_ended"),
        event_route(
            handlers.on_attempt,
            AttemptStarted,
            AttemptPhaseChanged,
            AttemptFinished,
            durable="orchestrator_on_attempt",
        ),
        event_route(
            handlers.on_summarized, ExperimentSummarized, durable="orchestrator_on_summarized"
        ),
        event_route(handlers.on_reported, ExecutorReported, durable="orchestrator_on_reported"),
    ]
