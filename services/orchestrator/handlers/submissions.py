"""New tasks: planned in this installation, and stored or only shown."""

import asyncio
import dataclasses
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import asyncpg
from msgspec.structs import replace

from schemas.errors import Accepted, ErrorCode, Reply
from schemas.orchestrator.experiments import ExperimentState, SubmitTask, TaskState
from schemas.orchestrator.uploads import ListUploadUses, UploadUses
from schemas.orchestrator.views import TaskPlan, ValidateTask
from schemas.task.benchmark import BenchmarkTool
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.lifecycle import tasks
from services.orchestrator.domain.plan.plan import refuse_missing
from services.orchestrator.domain.progress.next_actions import TaskActions
from services.orchestrator.domain.progress.snapshot import TaskSnapshot
from services.orchestrator.domain.records import Task, new_experiment
from services.orchestrator.ledger import past_runs, task_rows, upload_rows
from services.orchestrator.node_names import with_node_ids
from services.orchestrator.planning.forecaster import Answered, Forecaster
from services.orchestrator.planning.search_library import SearchLibrary
from services.orchestrator.planning.task_prior import prior_for
from services.orchestrator.planning.whole_plan import (
    Surroundings,
    WholePlan,
    ask_around,
    make_whole_plan,
)
from services.orchestrator.proposal_rounds import decide_answered
from services.orchestrator.task_progress import Progress
from services.orchestrator.views import plan_view
from shared.clock import utcnow
from shared.disk import require_room
from shared.errors import RefusedError
from shared.ids import new_id
from shared.messaging.bus import Bus, Route, command_route, query_route
from shared.postgres.commands import once
from shared.postgres.database import Connection, Database
from shared.waiting import wait_for

# What may wait for the first executor's report at once: one after the other, the second would wait
# beyond its requester's deadline.
MAX_WAITING: Final = 64


@dataclass(frozen=True, slots=True)
class SubmissionHandlers:
    """`first_report` is set when an executor has reported to this process."""

    database: Database
    bus: Bus
    progress: Progress
    first_report: asyncio.Event
    first_report_seconds: float
    data_dir: Path
    library: SearchLibrary
    forecaster: Forecaster = field(default_factory=Forecaster)

    async def submit_task(self, command: SubmitTask) -> Reply:
        """Store a task with its experiments and request the first GPUs; or store nothing.

        Raises UnavailableError where the disk is full.
        """
        require_room(self.data_dir)
        self.library.want_for(command.task.optimization)
        task_file = replace(command.task, gpus=with_node_ids(command.task.gpus))
        around = await self._ask_around(task_file)
        around = dataclasses.replace(around, answered=await self._ask_forecasts(task_file, around))
        try:
            async with self.database.transaction() as connection:
                whole_plan = await make_whole_plan(connection, command.namespace, task_file, around)
            refuse_missing(whole_plan.plan)
        except RefusedError as refusal:
            return await once(self.database, command, partial(_refuse, refusal))
        now = utcnow()
        task = _new_task(command, whole_plan, around, now)
        actions = await _decide_first(task, whole_plan, around.installation, now)

        async def apply(connection: Connection) -> Accepted:
            try:
                await task_rows.insert(connection, actions.task)
            except asyncpg.UniqueViolationError as error:
                raise _refuse_taken(command, error) from error
            await self.progress.begin(connection, task_file.gpus, around.installation, actions)
            return Accepted(command_id=command.command_id, revision=actions.task.revision)

        return await once(self.database, command, apply)

    async def validate_task(self, query: ValidateTask) -> TaskPlan:
        """Return the task's expansion, also where this installation cannot run it."""
        task_file = replace(query.task, gpus=with_node_ids(query.task.gpus))
        around = await self._ask_around(task_file)
        async with self.database.transaction() as connection:
            whole_plan = await make_whole_plan(connection, query.namespace, task_file, around)
            plan = await past_runs.with_memory_learned(
                connection, task_file.gpus, whole_plan.plan, around.largest_gpu_mb
            )
        return plan_view(whole_plan.file, plan)

    async def list_upload_uses(self, query: ListUploadUses) -> UploadUses:
        """Return the uploaded files that unfinished tasks of a namespace use."""
        async with self.database.statements() as connection:
            return UploadUses(uses=await upload_rows.list_uses(connection, query.namespace))

    async def _ask_forecasts(self, task: TaskFile, around: Surroundings) -> Answered | None:
        if task.optimization.prior is None:
            return None
        try:
            prior, _ = prior_for(task, around.installation)
        except RefusedError:
            return None  # the plan says so
        return await self.forecaster.ask(task, prior)

    async def _ask_around(self, task: TaskFile) -> Surroundings:
        """Ask once executors that start together with this service have had time to report."""
        installation = await self.progress.read_installation(self.database)
        if not installation.offers:
            await wait_for(self.first_report, self.first_report_seconds)
            installation = await self.progress.read_installation(self.database)
        return await ask_around(self.bus, task, installation)


def _new_task(
    command: SubmitTask, whole_plan: WholePlan, around: Surroundings, now: datetime
) -> Task:
    """Return the task as it is stored, with its nodes as people name them."""
    plan = whole_plan.plan
    return Task(
        task_id=command.task_id,
        namespace=command.namespace,
        task_name=command.task.task_name,
        state=TaskState.ACCEPTED,
        mode=plan.mode,
        file=replace(whole_plan.file, gpus=command.task.gpus),
        created_at=now,
        notes=plan.notes,
        benchmark_tool=plan.benchmark_tool or BenchmarkTool.BUILTIN,  # none is refused
        experiments_at_most=plan.experiments_at_most,
        stop_reason=plan.stop_reason,
        cut=plan.cut,
        warm=whole_plan.warm,
        prices=around.prices,
        prior=whole_plan.prior,
        largest_gpu_mb=around.largest_gpu_mb,
        requester=command.requester,
    )


async def _decide_first(
    task: Task, whole_plan: WholePlan, installation: Installation, now: datetime
) -> TaskActions:
    """Decide what a task does first, which is not stored yet: nothing else can change it."""
    plan = whole_plan.plan
    accepted = tasks.accept(task, experiments=plan.experiments_at_most, cut=plan.cut, now=now)
    experiments = [new_experiment(task, planned, new_id(), now) for planned in plan.experiments]
    snapshot = TaskSnapshot(
        task=accepted.task,
        file=whole_plan.file,
        tally={ExperimentState.PENDING: len(experiments)},
        open_attempts=0,
        pending=tuple(experiments[: task.file.optimization.max_parallel]),
        history=(),
    )
    actions = await decide_answered(snapshot, installation, plan.planner, now)
    return replace(
        actions,
        events=(*accepted.events, *actions.events),
        added=(*experiments, *actions.added),
    )


async def _refuse(refusal: RefusedError, _: Connection) -> Accepted:
    """Refuse within `once`, which remembers it, or has accepted the same command before."""
    raise refusal


def _refuse_taken(command: SubmitTask, error: asyncpg.UniqueViolationError) -> RefusedError:
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


def submission_routes(handlers: SubmissionHandlers) -> list[Route]:
    return [
        command_route(handlers.submit_task, SubmitTask, workers=MAX_WAITING),
        query_route(handlers.validate_task, ValidateTask, workers=MAX_WAITING),
        query_route(handlers.list_upload_uses, ListUploadUses),
    ]
