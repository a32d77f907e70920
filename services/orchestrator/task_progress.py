"""What was decided, and what follows from it for the task: loaded, decided and written."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from schemas.base import Command, Event
from schemas.gpus.checks import CudaRules
from schemas.orchestrator.experiments import ExperimentState
from schemas.task.task_file import GpuPreferences
from schemas.task.trust import RunInfo
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.lifecycle import keeping, waiting
from services.orchestrator.domain.lifecycle.endpoints import commands_of
from services.orchestrator.domain.lifecycle.keeping import LeftEngine
from services.orchestrator.domain.progress.next_actions import TaskActions, next_actions
from services.orchestrator.domain.progress.requests import request_gpus
from services.orchestrator.domain.records import (
    Attempt,
    Decision,
    Experiment,
    Task,
    same_again,
)
from services.orchestrator.ledger import (
    attempt_rows,
    decision_writer,
    experiment_rows,
    offer_rows,
    past_runs,
    task_rows,
)
from services.orchestrator.ledger.snapshots import load_snapshot
from services.orchestrator.planning import quality_verdicts
from services.orchestrator.proposal_rounds import PostponedTasks, ProposalNeededError, Proposals
from shared.clock import utcnow
from shared.engines.variants import variant_of
from shared.ids import new_id
from shared.postgres.commands import stage_with_commands
from shared.postgres.database import Connection, Database


@dataclass(slots=True)
class _Messages:
    """What is published and sent once all rows of a transaction are written."""

    events: list[Event] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)

    def note(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            self.events += decision.events
            self.commands += commands_of(decision)


@dataclass(frozen=True, slots=True)
class Progress:
    """`offer_ttl` is how long an executor counts as present after its last report, `overdue_after`
    how long after its task's timeout an attempt is stopped.

    A failed experiment is not retried before `retry_pause` has passed: what failed it, a container
    engine that starts anew or a network, takes time to return.
    """

    offer_ttl: timedelta
    retry_pause: timedelta
    overdue_after: timedelta
    cuda_rules: CudaRules = CudaRules.STRICT
    postponed: PostponedTasks = field(default_factory=PostponedTasks)

    async def load_installation(self, connection: Connection) -> Installation:
        """Return what the present executors offer."""
        offers = await offer_rows.offers(connection, utcnow() - self.offer_ttl)
        return Installation(offers, self.cuda_rules)

    async def read_installation(self, database: Database) -> Installation:
        """Return the same in a transaction of its own."""
        async with database.transaction() as connection:
            return await self.load_installation(connection)

    async def tasks_to_advance(self, connection: Connection) -> list[UUID]:
        """Return tasks with a failed experiment that has paused for long enough, and searches of
        which nothing is under way.
        """
        return await task_rows.to_advance(connection, utcnow() - self.retry_pause)

    async def write(
        self,
        connection: Connection,
        task: Task | None,
        decisions: Sequence[Decision] = (),
        events: Sequence[Event] = (),
    ) -> None:
        """Write a locked task and decisions about its experiments, with their messages."""
        messages = _Messages(events=list(events))
        messages.note(decisions)
        await decision_writer.write_decisions(connection, task, decisions)
        await stage_with_commands(connection, messages.events, messages.commands)

    async def begin(
        self,
        connection: Connection,
        gpus: GpuPreferences | None,
        installation: Installation,
        actions: TaskActions,
    ) -> None:
        """Write what a task does first, which was stored a moment ago as it is in `actions`.

        `gpus` are the task's, with its nodes by their ids.
        """
        messages = _Messages()
        await self._write_actions(connection, gpus, installation, actions, messages)
        await stage_with_commands(connection, messages.events, messages.commands)

    async def advance(
        self,
        connection: Connection,
        task: Task,
        proposals: Proposals,
        decisions: Sequence[Decision] = (),
        events: Sequence[Event] = (),
        *,
        is_best_open: bool = False,
    ) -> Task:
        """Write decisions about a locked task's experiments, and what follows for the task.

        Return the task as it is then. `is_best_open`: another of its experiments may be the best
        now. Raises ProposalNeededError where a search has to be asked first.
        """
        messages = _Messages(events=list(events))
        messages.note(decisions)
        await decision_writer.write_decisions(connection, None, decisions)
        task = next((d.task for d in reversed(decisions) if d.task is not None), task)
        if task.started_at is not None:
            is_best_open |= await quality_verdicts.compare_answers(connection, task)
        is_done = False
        while not is_done:
            now = utcnow()
            snapshot = await load_snapshot(
                connection, task, now, self.retry_pause, is_best_open=is_best_open
            )
            installation = proposals.installation or Installation()
            if proposals.installation is None and snapshot.may_start_any:
                installation = await self.load_installation(connection)
            actions = next_actions(snapshot, installation, now, new_id, proposals.answers)
            if actions.question is not None:
                if proposals.is_open:
                    raise ProposalNeededError(actions.question, task, installation)
                self.postponed.add(task.task_id)
            changed_task = actions.task if actions.task != task else None
            await self._write_actions(
                connection, snapshot.file.gpus, installation, actions, messages, changed_task
            )
            task = actions.task
            # What is left of a task whose pending experiments were cancelled is decided anew.
            is_done = not actions.cancelled_because
        await stage_with_commands(connection, messages.events, messages.commands)
        return task

    async def _write_actions(
        self,
        connection: Connection,
        gpus: GpuPreferences | None,
        installation: Installation,
        actions: TaskActions,
        messages: _Messages,
        changed_task: Task | None = None,
    ) -> None:
        now, task = utcnow(), actions.task
        decisions: list[Decision] = []
        if actions.cancelled_because:
            decisions += [
                waiting.cancel_unstarted(experiment, actions.cancelled_because, now)
                for experiment in await experiment_rows.find_unfinished(connection, task.task_id)
                if experiment.state is ExperimentState.PENDING
                and actions.cancelled_engine in {None, variant_of(experiment.parameters)}
            ]
        repetitions = await _repeat(connection, actions, now)
        repeated = [experiment for experiment, _ in repetitions]
        kept = [(experiment, engine) for experiment, engine in repetitions if engine is not None]
        decisions += [
            keeping.go_on_with(task, experiment, engine, now, new_id())
            for experiment, engine in kept
        ]
        passed_on = [engine.attempt for _, engine in kept]
        decisions += await _leave(connection, passed_on, actions.let_go, now)
        fresh = [experiment for experiment, engine in repetitions if engine is None]
        requesting = (*actions.requesting, *fresh)[: actions.room]
        facts = await past_runs.load_facts(connection, gpus, requesting)
        decisions += [
            request_gpus(
                gpus, task, experiment, fact, installation, self.overdue_after, now, new_id
            )
            for experiment, fact in zip(requesting, facts, strict=True)
        ]
        messages.note(decisions)
        messages.events += actions.events
        await decision_writer.write_decisions(
            connection, changed_task, decisions, added=(*actions.added, *repeated)
        )


async def let_go_all(connection: Connection, task: Task, reason: str) -> list[Decision]:
    """Decide the end of all engines that attempts of a task have left up."""
    attempts = await attempt_rows.find_left(connection, task.task_id)
    return await _leave(connection, (), attempts, utcnow(), reason)


async def _leave(
    connection: Connection,
    passed_on: Sequence[Attempt],
    let_go: Sequence[Attempt],
    now: datetime,
    reason: str = "nothing more is measured on it",
) -> list[Decision]:
    """Decide about attempts whose engines another run goes on with, or none does."""
    if not passed_on and not let_go:
        return []
    ids = [attempt.experiment_id for attempt in (*passed_on, *let_go)]
    experiments = await experiment_rows.find_all(connection, ids)
    return [
        *(keeping.pass_on(experiments[a.experiment_id], a, now) for a in passed_on),
        *(keeping.let_go(experiments[a.experiment_id], a, reason, now) for a in let_go),
    ]


async def _repeat(
    connection: Connection, actions: TaskActions, now: datetime
) -> list[tuple[Experiment, LeftEngine | None]]:
    """Return the further runs of configurations that have been measured, and which engines that
    are up they go on with.
    """
    if not actions.repetitions:
        return []
    first_ids = [repetition.first_id for repetition in actions.repetitions]
    firsts = await experiment_rows.find_all(connection, first_ids)
    runs: list[tuple[Experiment, LeftEngine | None]] = []
    for repetition in actions.repetitions:
        first, check = firsts.get(repetition.first_id), repetition.check
        if first is not None:
            further, spec = repetition.further, actions.task.file.optimization
            use = ""
            if further.left_engine is None:
                use = keeping.fresh_text(first, further.fresh_because, is_asked=spec.keep_engine)
            run = RunInfo(role=check.role, repeats=check.repeats, seed=check.seed, engine_use=use)
            experiment = same_again(first, repetition.ordinal, run, new_id(), now, check.reason)
            runs.append((experiment, further.left_engine))
    return runs
