"""Commands and queries of tasks and experiments."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from schemas.base import ScopedCommand
from schemas.errors import Accepted, ErrorCode, Reply
from schemas.orchestrator.deletion import DeleteExperiment, DeleteTask
from schemas.orchestrator.experiments import (
    CancelTask,
    ExperimentState,
    PauseTask,
    ResumeTask,
)
from schemas.orchestrator.views import (
    ExperimentList,
    ExperimentView,
    GetExperiment,
    GetTask,
    ListExperiments,
    ListTasks,
    TaskList,
    TaskView,
)
from services.orchestrator.domain.lifecycle import running, tasks, waiting
from services.orchestrator.domain.records import (
    Decision,
    Experiment,
    Task,
    TaskDecision,
    delete,
)
from services.orchestrator.ledger import (
    attempt_rows,
    experiment_rows,
    search_history,
    task_rows,
)
from services.orchestrator.ledger.decision_writer import write_rows
from services.orchestrator.ledger.experiment_rows import ExperimentPlace
from services.orchestrator.ledger.task_rows import TaskPlace
from services.orchestrator.planning.gpu_prices import PriceCache
from services.orchestrator.proposal_rounds import Proposals, once_with_proposals
from services.orchestrator.task_progress import Progress, let_go_all
from services.orchestrator.views import experiment_view, spending_of, task_view
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.messaging.bus import Route, command_route, query_route
from shared.messaging.expected_revision import require_revision
from shared.messaging.paging import page_of, place_at
from shared.messaging.speakers import require_speaker
from shared.postgres.commands import once
from shared.postgres.database import Connection, Database
from shared.postgres.outbox import stage

MAX_EXPERIMENTS: Final = 500  # decoded for one answer


@dataclass(frozen=True, slots=True)
class Handlers:
    """A task is archived `archive_after` its end; None: never. `messages` are those of attempts
    that are not ready yet.
    """

    database: Database
    progress: Progress
    messages: Mapping[UUID, str]
    price_cache: PriceCache
    archive_after: timedelta | None = None

    async def cancel_task(self, command: CancelTask) -> Reply:
        """Withdraw what waits, stop what runs; the task ends when nothing of it runs."""

        async def apply(connection: Connection, proposals: Proposals) -> Accepted:
            task = await _lock_task(connection, command.task_id, command)
            cancelling = tasks.request_cancel(task, command.reason)
            if cancelling is None:
                return Accepted(command_id=command.command_id, revision=task.revision)
            decisions: list[Decision] = []
            for experiment in await experiment_rows.find_unfinished(connection, task.task_id):
                decisions += await _cancel(connection, experiment, cancelling.cancel_reason)
            await write_rows(connection, [cancelling])
            task = await self.progress.advance(connection, cancelling, proposals, decisions)
            return Accepted(command_id=command.command_id, revision=task.revision)

        return await once_with_proposals(self.database, command, apply)

    async def pause_task(self, command: PauseTask) -> Reply:
        """Withdraw what waits; what was granted goes on."""

        async def apply(connection: Connection) -> Accepted:
            task = await _lock_task(connection, command.task_id, command)
            paused = tasks.pause(task, utcnow())
            decisions = [
                waiting.withdraw(experiment, attempt, "the task was paused", utcnow())
                for experiment in await experiment_rows.find_unfinished(connection, task.task_id)
                if experiment.state is ExperimentState.WAITING
                and (attempt := await attempt_rows.open_of(connection, experiment.experiment_id))
            ]
            decisions += await let_go_all(connection, task, "the task was paused")
            if paused is None:
                await self.progress.write(connection, None, decisions)
            else:
                await self.progress.write(connection, paused.task, decisions, paused.events)
            return _accept(command.command_id, task, paused)

        return await once(self.database, command, apply)

    async def resume_task(self, command: ResumeTask) -> Reply:
        """Request GPUs again."""

        async def apply(connection: Connection, proposals: Proposals) -> Accepted:
            task = await _lock_task(connection, command.task_id, command)
            resumed = tasks.resume(task, utcnow())
            if resumed is None:
                await self.progress.advance(connection, task, proposals)
            else:
                await write_rows(connection, [resumed.task])
                await self.progress.advance(
                    connection, resumed.task, proposals, events=resumed.events
                )
            return _accept(command.command_id, task, resumed)

        return await once_with_proposals(self.database, command, apply)

    async def delete_task(self, command: DeleteTask) -> Reply:
        """Forget a finished task with its experiments."""

        async def apply(connection: Connection) -> Accepted:
            task = await _lock_task(connection, command.task_id, command)
            require_revision(command.expected_revision, task.revision)
            tally = (await experiment_rows.tallies(connection, [task.task_id]))[task.task_id]
            event = tasks.delete(task, experiments=sum(tally.values()), now=utcnow())
            await task_rows.delete(connection, task.task_id)
            await stage(connection, event)
            return Accepted(command_id=command.command_id, revision=event.revision)

        return await once(self.database, command, apply)

    async def delete_experiment(self, command: DeleteExperiment) -> Reply:
        """Forget one experiment of a finished task; another may be its best then."""

        async def apply(connection: Connection, proposals: Proposals) -> Accepted:
            experiment = await experiment_rows.find(connection, command.experiment_id)
            if experiment is None:
                raise _unknown("experiment", command.experiment_id)
            task = await _lock_task(connection, experiment.task_id, command)
            tasks.require_finished(task)
            require_revision(command.expected_revision, experiment.revision)
            event = delete(experiment, utcnow())
            await experiment_rows.delete(connection, experiment)
            await self.progress.advance(
                connection, task, proposals, events=[event], is_best_open=True
            )
            return Accepted(command_id=command.command_id, revision=event.revision)

        return await once_with_proposals(self.database, command, apply)

    async def get_task(self, query: GetTask) -> TaskView:
        """Return one task with its file."""
        async with self.database.transaction() as connection:
            task = await task_rows.find(connection, query.task_id)
            if task is None:
                raise _unknown("task", query.task_id)
            tally = (await experiment_rows.tallies(connection, [task.task_id]))[task.task_id]
            view = self._task_view(task, tally, with_file=True)
            if not query.with_spending:
                return view
            now = utcnow()
            holds = await search_history.sum_held_gpus(connection, task.task_id, now)
            times = await search_history.attempt_times(connection, task.task_id, now)
        spending = spending_of(task, tally, holds, times, await self.price_cache.prices())
        return replace(view, spending=spending)

    async def list_tasks(self, query: ListTasks) -> TaskList:
        """Tasks without their files, as many as one answer carries."""
        place = place_at(query.cursor, TaskPlace)
        async with self.database.transaction() as connection:
            tasks = await task_rows.page(
                connection, query, place, query.limit + 1, self._archive_time(query.archived)
            )
            tallies = await experiment_rows.tallies(connection, [task.task_id for task in tasks])
        page, next_cursor = page_of(
            [
                (
                    self._task_view(task, tallies[task.task_id], with_file=False),
                    TaskPlace(task.created_at, task.task_id),
                )
                for task in tasks
            ],
            query.limit,
        )
        return TaskList(tasks=page, next_cursor=next_cursor)

    async def get_experiment(self, query: GetExperiment) -> ExperimentView:
        """Return one experiment with its attempts."""
        async with self.database.transaction() as connection:
            experiment = await experiment_rows.find(connection, query.experiment_id)
            if experiment is None:
                raise _unknown("experiment", query.experiment_id)
            attempts = await attempt_rows.of_experiments(connection, [query.experiment_id])
        own_attempts = attempts[query.experiment_id]
        return experiment_view(experiment, own_attempts, with_logs=True, messages=self.messages)

    async def list_experiments(self, query: ListExperiments) -> ExperimentList:
        """Experiments without the logs of failed attempts, as many as one answer carries."""
        most = min(query.limit, MAX_EXPERIMENTS)
        start = place_at(query.cursor, ExperimentPlace)
        async with self.database.transaction() as connection:
            since = self._archive_time(query.archived or query.task_id is not None)
            rows = await experiment_rows.page(connection, query, start, most + 1, since)
            attempts = await attempt_rows.of_experiments(
                connection, [e.experiment_id for e, _ in rows]
            )
        page, next_cursor = page_of(
            [
                (
                    experiment_view(
                        experiment,
                        attempts[experiment.experiment_id],
                        with_logs=False,
                        messages=self.messages,
                    ),
                    place,
                )
                for experiment, place in rows
            ],
            most,
        )
        return ExperimentList(experiments=page, next_cursor=next_cursor)

    def _task_view(
        self, task: Task, tally: Mapping[ExperimentState, int], *, with_file: bool
    ) -> TaskView:
        since, at = self._archive_time(archived=False), task.finished_at
        archived = since is not None and at is not None and at <= since
        return task_view(task, tally, with_file=with_file, archived=archived)

    def _archive_time(self, archived: bool) -> datetime | None:
        """Return the end before which tasks are archived; None: none are, or all are asked for."""
        return None if archived or self.archive_after is None else utcnow() - self.archive_after


async def _cancel(connection: Connection, experiment: Experiment, reason: str) -> list[Decision]:
    """Decide what cancelling means for an unfinished experiment; a measured one awaits its
    summary.
    """
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


async def _lock_task(connection: Connection, task_id: UUID, command: ScopedCommand) -> Task:
    task = await task_rows.lock(connection, task_id)
    if task is None:
        raise _unknown("task", task_id)
    require_speaker(command.speaker, task.namespace)
    return task


def _accept(command_id: UUID, task: Task, decision: TaskDecision | None) -> Accepted:
    return Accepted(
        command_id=command_id,
        revision=decision.task.revision if decision is not None else task.revision,
    )


def _unknown(what: str, identifier: UUID) -> RefusedError:
    return RefusedError(
        ErrorCode.NOT_FOUND, f"there is no {what} {identifier}", path=f"$.{what}_id"
    )


def request_routes(handlers: Handlers) -> list[Route]:
    """Commands and queries."""
    return [
        command_route(handlers.cancel_task, CancelTask),
        command_route(handlers.pause_task, PauseTask),
        command_route(handlers.resume_task, ResumeTask),
        command_route(handlers.delete_task, DeleteTask),
        command_route(handlers.delete_experiment, DeleteExperiment),
        query_route(handlers.get_task, GetTask),
        query_route(handlers.list_tasks, ListTasks),
        query_route(handlers.get_experiment, GetExperiment),
        query_route(handlers.list_experiments, ListExperiments),
    ]
