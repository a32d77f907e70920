"""Commands and queries of tasks and experiments."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import asyncpg
from msgspec.structs import replace

from schemas.base import ScopedCommand
from schemas.errors import Accepted, ErrorCode, Reply
from schemas.orchestrator.deletion import DeleteExperiment, DeleteTask
from schemas.orchestrator.experiments import (
    CancelTask,
    ExperimentState,
    PauseTask,
    ResumeTask,
    SubmitTask,
)
from schemas.orchestrator.views import (
    ExperimentList,
    ExperimentView,
    GetExperiment,
    GetTask,
    ListExperiments,
    ListTasks,
    TaskList,
    TaskPlan,
    TaskView,
    ValidateTask,
)
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.lifecycle import running, tasks, waiting
from services.orchestrator.domain.plan.plan import refuse_missing
from services.orchestrator.domain.records import (
    Decision,
    Experiment,
    Task,
    TaskDecision,
    delete,
    new_experiment,
)
from services.orchestrator.ledger import (
    attempt_rows,
    experiment_rows,
    past_runs,
    search_history,
    task_rows,
)
from services.orchestrator.ledger.experiment_rows import ExperimentPlace
from services.orchestrator.ledger.task_rows import TaskPlace
from services.orchestrator.planning.gpu_prices import PriceCache
from services.orchestrator.planning.search_library import SearchLibrary
from services.orchestrator.planning.whole_plan import (
    Around,
    WholePlan,
    ask_around,
    make_whole_plan,
)
from services.orchestrator.task_progress import Progress
from services.orchestrator.views import experiment_view, plan_view, spending_of, task_view
from shared.clock import utcnow
from shared.disk import require_room
from shared.errors import RefusedError
from shared.ids import new_id
from shared.messaging.bus import Bus, Route, command_route, query_route
from shared.messaging.expected_revision import require_revision
from shared.messaging.paging import page_of, place_at
from shared.messaging.speakers import require_speaker
from shared.postgres.commands import once
from shared.postgres.database import Connection, Database
from shared.postgres.outbox import stage
from shared.waiting import wait_for

# What may wait for the first executor's report at once: one after the other, the second would wait
# beyond its requester's deadline.
WAITING_AT_ONCE: Final = 64
MOST_EXPERIMENTS: Final = 500  # decoded for one answer


@dataclass(frozen=True, slots=True)
class Handlers:
    """`first_report` is set when an executor has reported to this process.

    A task is archived `archive_after` its end; None: never. `messages` are those of attempts that
    are not ready yet.
    """

    database: Database
    bus: Bus
    progress: Progress
    first_report: asyncio.Event
    first_report_seconds: float
    data_dir: Path
    messages: Mapping[UUID, str]
    library: SearchLibrary
    price_cache: PriceCache
    archive_after: timedelta | None = None

    async def submit_task(self, command: SubmitTask) -> Reply:
        """Store a task with its experiments and request the first GPUs; or store nothing.

        Raises UnavailableError where the disk is full.
        """
        require_room(self.data_dir)
        await self._await_first_report()
        self.library.want_for(command.task.optimization)
        around = await self._ask_around(command.task)

        async def apply(connection: Connection) -> Accepted:
            whole = await make_whole_plan(connection, command.namespace, command.task, around)
            refuse_missing(whole.plan)
            await self._store(connection, command, whole)
            task = await self.progress.advance(connection, command.task_id)
            return Accepted(command_id=command.command_id, revision=task.revision)

        return await once(self.database, command, apply)

    async def cancel_task(self, command: CancelTask) -> Reply:
        """Withdraw what waits, stop what runs; the task ends when nothing of it runs."""

        async def apply(connection: Connection) -> Accepted:
            task = await _locked(connection, command.task_id, command)
            cancelling = tasks.request_cancel(task, command.reason)
            if cancelling is None:
                return Accepted(command_id=command.command_id, revision=task.revision)
            await task_rows.save(connection, cancelling)
            decisions: list[Decision] = []
            for experiment in await experiment_rows.unfinished(connection, task.task_id):
                decisions += await _cancel(connection, experiment, cancelling.cancel_reason)
            await self.progress.write(connection, decisions)
            task = await self.progress.advance(connection, task.task_id)
            return Accepted(command_id=command.command_id, revision=task.revision)

        return await once(self.database, command, apply)

    async def pause_task(self, command: PauseTask) -> Reply:
        """Withdraw what waits; what was granted goes on."""

        async def apply(connection: Connection) -> Accepted:
            task = await _locked(connection, command.task_id, command)
            paused = tasks.pause(task, utcnow())
            await self.progress.write_task(connection, paused)
            decisions = [
                waiting.withdraw(experiment, attempt, "the task was paused", utcnow())
                for experiment in await experiment_rows.unfinished(connection, task.task_id)
                if experiment.state is ExperimentState.WAITING
                and (attempt := await attempt_rows.open_of(connection, experiment.experiment_id))
            ]
            await self.progress.write(connection, decisions)
            return _accepted(command.command_id, task, paused)

        return await once(self.database, command, apply)

    async def resume_task(self, command: ResumeTask) -> Reply:
        """Request GPUs again."""

        async def apply(connection: Connection) -> Accepted:
            task = await _locked(connection, command.task_id, command)
            resumed = tasks.resume(task, utcnow())
            await self.progress.write_task(connection, resumed)
            await self.progress.advance(connection, task.task_id)
            return _accepted(command.command_id, task, resumed)

        return await once(self.database, command, apply)

    async def delete_task(self, command: DeleteTask) -> Reply:
        """Forget a finished task with its experiments."""

        async def apply(connection: Connection) -> Accepted:
            task = await _locked(connection, command.task_id, command)
            require_revision(command.expected_revision, task.revision)
            tally = (await experiment_rows.tallies(connection, [task.task_id]))[task.task_id]
            event = tasks.delete(task, experiments=sum(tally.values()), now=utcnow())
            await task_rows.delete(connection, task.task_id)
            await stage(connection, event)
            return Accepted(command_id=command.command_id, revision=event.revision)

        return await once(self.database, command, apply)

    async def delete_experiment(self, command: DeleteExperiment) -> Reply:
        """Forget one experiment of a finished task; another may be its best then."""

        async def apply(connection: Connection) -> Accepted:
            experiment = await experiment_rows.find(connection, command.experiment_id)
            if experiment is None:
                raise _unknown("experiment", command.experiment_id)
            tasks.require_finished(await _locked(connection, experiment.task_id, command))
            require_revision(command.expected_revision, experiment.revision)
            event = delete(experiment, utcnow())
            await experiment_rows.delete(connection, experiment)
            await stage(connection, event)
            await self.progress.advance(connection, experiment.task_id)
            return Accepted(command_id=command.command_id, revision=event.revision)

        return await once(self.database, command, apply)

    async def get_task(self, query: GetTask) -> TaskView:
        """One task with its file."""
        async with self.database.transaction() as connection:
            task = await task_rows.find(connection, query.task_id)
            if task is None:
                raise _unknown("task", query.task_id)
            tally = (await experiment_rows.tallies(connection, [task.task_id]))[task.task_id]
            view = self._task_view(task, tally, with_file=True)
            if not query.with_spending:
                return view
            now = utcnow()
            held = await search_history.held_gpus(connection, task.task_id, now)
            times = await search_history.attempt_times(connection, task.task_id, now)
        spending = spending_of(task, tally, held, times, await self.price_cache.prices())
        return replace(view, spending=spending)

    async def list_tasks(self, query: ListTasks) -> TaskList:
        """Tasks without their files, as many as one answer carries."""
        after = place_at(query.cursor, TaskPlace)
        async with self.database.transaction() as connection:
            found = await task_rows.page(
                connection, query, after, query.limit + 1, self._finished_since(query.archived)
            )
            tallies = await experiment_rows.tallies(connection, [task.task_id for task in found])
        page, next_cursor = page_of(
            [
                (
                    self._task_view(task, tallies[task.task_id], with_file=False),
                    TaskPlace(task.created_at, task.task_id),
                )
                for task in found
            ],
            query.limit,
        )
        return TaskList(tasks=page, next_cursor=next_cursor)

    async def get_experiment(self, query: GetExperiment) -> ExperimentView:
        """One experiment with its attempts."""
        async with self.database.transaction() as connection:
            experiment = await experiment_rows.find(connection, query.experiment_id)
            if experiment is None:
                raise _unknown("experiment", query.experiment_id)
            attempts = await attempt_rows.of_experiments(connection, [query.experiment_id])
        own = attempts[query.experiment_id]
        return experiment_view(experiment, own, with_logs=True, messages=self.messages)

    async def list_experiments(self, query: ListExperiments) -> ExperimentList:
        """Experiments without the logs of failed attempts, as many as one answer carries."""
        most = min(query.limit, MOST_EXPERIMENTS)
        after = place_at(query.cursor, ExperimentPlace)
        async with self.database.transaction() as connection:
            if after is None and query.after_experiment_id is not None:
                after = await experiment_rows.place_of(connection, query.after_experiment_id)
                if after is None:
                    raise _unknown("experiment", query.after_experiment_id)
            since = self._finished_since(query.archived or query.task_id is not None)
            found = await experiment_rows.page(connection, query, after, most + 1, since)
            attempts = await attempt_rows.of_experiments(
                connection, [e.experiment_id for e, _ in found]
            )
        page, next_cursor = page_of(
            [
                (
                    experiment_view(
                        each,
                        attempts[each.experiment_id],
                        with_logs=False,
                        messages=self.messages,
                    ),
                    place,
                )
                for each, place in found
            ],
            most,
        )
        return ExperimentList(
            experiments=page,
            next_cursor=next_cursor,
            next_after_experiment_id=page[-1].experiment_id if next_cursor else None,
        )

    async def validate_task(self, query: ValidateTask) -> TaskPlan:
        """The task's expansion, also where this installation cannot run it."""
        await self._await_first_report()
        around = await self._ask_around(query.task)
        async with self.database.transaction() as connection:
            whole = await make_whole_plan(connection, query.namespace, query.task, around)
            plan = await past_runs.with_memory_learned(
                connection, whole.file, whole.plan, around.largest_gpu_mb
            )
        return plan_view(whole.file, plan)

    async def _ask_around(self, task: TaskFile) -> Around:
        async with self.database.transaction() as connection:
            offers = await self.progress.offers(connection)
        return await ask_around(self.bus, task, offers, self.progress.cuda_rules)

    def _task_view(
        self, task: Task, tally: Mapping[ExperimentState, int], *, with_file: bool
    ) -> TaskView:
        since, at = self._finished_since(archived=False), task.finished_at
        archived = since is not None and at is not None and at <= since
        return task_view(task, tally, with_file=with_file, archived=archived)

    def _finished_since(self, archived: bool) -> datetime | None:
        """What finished then or before is archived; None: nothing is, or it is shown too."""
        return None if archived or self.archive_after is None else utcnow() - self.archive_after

    async def _await_first_report(self) -> None:
        """Give executors that start together with this service the time to report."""
        async with self.database.transaction() as connection:
            if await self.progress.offers(connection):
                return
        await wait_for(self.first_report, self.first_report_seconds)

    async def _store(self, connection: Connection, command: SubmitTask, whole: WholePlan) -> None:
        now, plan = utcnow(), whole.plan
        task = whole.new_task(command, now)
        accepted = tasks.accept(task, experiments=plan.experiments_at_most, cut=plan.cut, now=now)
        try:
            await task_rows.insert(connection, accepted.task)
        except asyncpg.UniqueViolationError as error:
            raise _taken(command, error) from error
        await self.progress.write_task(connection, accepted)
        experiments = [new_experiment(task, planned, new_id(), now) for planned in plan.experiments]
        await experiment_rows.save(connection, experiments)


async def _cancel(connection: Connection, experiment: Experiment, reason: str) -> list[Decision]:
    """What cancelling means for an unfinished experiment; a measured one awaits its summary."""
    if experiment.state is ExperimentState.PENDING:
        return [waiting.cancel_unstarted(experiment, reason, utcnow())]
    attempt = await attempt_rows.open_of(connection, experiment.experiment_id)
    if attempt is None:
        return []
    if experiment.state is ExperimentState.WAITING:
        withdrawn = waiting.withdraw(experiment, attempt, reason, utcnow())
        ended = waiting.cancel_unstarted(withdrawn.experiment, reason, utcnow())
        return [replace(withdrawn, experiment=ended.experiment, events=ended.events)]
    return [running.stop(experiment, attempt, reason)]


async def _locked(connection: Connection, task_id: UUID, command: ScopedCommand) -> Task:
    task = await task_rows.lock(connection, task_id)
    if task is None:
        raise _unknown("task", task_id)
    require_speaker(command.speaker, task.namespace)
    return task


def _accepted(command_id: UUID, task: Task, decision: TaskDecision | None) -> Accepted:
    return Accepted(
        command_id=command_id,
        revision=decision.task.revision if decision is not None else task.revision,
    )


def _unknown(what: str, identifier: UUID) -> RefusedError:
    return RefusedError(
        ErrorCode.NOT_FOUND, f"there is no {what} {identifier}", path=f"$.{what}_id"
    )


def _taken(command: SubmitTask, error: asyncpg.UniqueViolationError) -> RefusedError:
    if error.constraint_name == "task_unfinished_name":
        return RefusedError(
            ErrorCode.NAME_TAKEN,
            f"expected a name that no unfinished task of namespace {command.namespace!r} has, "
            f"got {command.task.task_name!r}",
            path="$.task_name",
        )
    return RefusedError(
        ErrorCode.CONFLICT, f"a task {command.task_id} exists already", path="$.task_id"
    )


def request_routes(handlers: Handlers) -> list[Route]:
    """Commands and queries."""
    return [
        command_route(handlers.submit_task, SubmitTask, workers=WAITING_AT_ONCE),
        command_route(handlers.cancel_task, CancelTask),
        command_route(handlers.pause_task, PauseTask),
        command_route(handlers.resume_task, ResumeTask),
        command_route(handlers.delete_task, DeleteTask),
        command_route(handlers.delete_experiment, DeleteExperiment),
        query_route(handlers.get_task, GetTask),
        query_route(handlers.list_tasks, ListTasks),
        query_route(handlers.get_experiment, GetExperiment),
        query_route(handlers.list_experiments, ListExperiments),
        query_route(handlers.validate_task, ValidateTask, workers=WAITING_AT_ONCE),
    ]
