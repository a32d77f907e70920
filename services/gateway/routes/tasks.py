"""Tasks and experiments: the orchestrator's, joined to what results measured."""

import asyncio
from collections.abc import Awaitable
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

import msgspec
from litestar import Response
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from schemas.errors import ErrorCode
from schemas.gateway import Cause
from schemas.orchestrator import (
    CancelTask,
    ExperimentList,
    ExperimentState,
    ExperimentView,
    GetExperiment,
    GetTask,
    ListExperiments,
    ListTasks,
    PauseTask,
    ResumeTask,
    SubmitTask,
    TaskList,
    TaskPlan,
    TaskState,
    TaskView,
    ValidateTask,
)
from schemas.results import GetSummary, SummaryView
from schemas.scheduler_views import ExplainReservation, Explanation
from schemas.task import TaskFile
from services.gateway.bodies import StrictBody
from services.gateway.domain.access import Identity
from services.gateway.domain.experiments import experiment_detail
from services.gateway.gateway import Gateway
from services.gateway.routes.common import (
    Caller,
    IdempotencyKey,
    InNamespace,
    InStates,
    TheGateway,
    command_id_of,
    get,
    id_for,
    listed,
    post,
)
from shared.errors import RefusedError, UnavailableError
from shared.logging import log

V = TypeVar("V")

SUMMARIES_AT_ONCE: Final = 8
MEASURED: Final = frozenset({ExperimentState.SUCCEEDED})


@post("/tasks", dto=StrictBody[TaskFile], return_dto=None)
async def submit_task(
    data: JSONBody[TaskFile],
    gateway: TheGateway,
    identity: Caller,
    task_id: FromQuery[UUID | None] = None,
    namespace: InNamespace = None,
    idempotency_key: IdempotencyKey = None,
) -> Response[TaskView]:
    """Store a task and run it. `task_id` may be chosen by the sender."""
    task_id = task_id or id_for(idempotency_key)
    command = SubmitTask(
        command_id=command_id_of(idempotency_key),
        task_id=task_id,
        namespace=identity.namespace_for(namespace),
        task=data,
    )
    await gateway.send(command)
    view = await gateway.ask(GetTask(task_id=task_id), TaskView)
    return Response(view, status_code=201, headers={"Location": f"/api/v1/tasks/{task_id}"})


@post("/tasks/validate", status_code=200, dto=StrictBody[TaskFile], return_dto=None)
async def validate_task(data: JSONBody[TaskFile], gateway: TheGateway) -> TaskPlan:
    """What a task would become here; nothing is stored."""
    return await gateway.ask(ValidateTask(task=data), TaskPlan)


@get("/tasks")
async def list_tasks(
    gateway: TheGateway,
    namespace: InNamespace = None,
    in_states: InStates = None,
    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100,
) -> TaskList:
    """Tasks, newest first; `state` is a comma-separated list."""
    states = listed(in_states, TaskState, "state")
    return await gateway.ask(ListTasks(namespace=namespace, states=states, limit=limit), TaskList)


@get("/tasks/{task_id:str}")
async def get_task(task_id: FromPath[UUID], gateway: TheGateway) -> TaskView:
    """One task."""
    return await gateway.ask(GetTask(task_id=task_id), TaskView)


@post("/tasks/{task_id:str}/cancel", status_code=200, dto=StrictBody[Cause], return_dto=None)
async def cancel_task(
    task_id: FromPath[UUID],
    data: JSONBody[Cause],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> TaskView:
    """Stop a task. It is over when its state says so."""
    await _require_task(gateway, identity, task_id)
    command_id = command_id_of(idempotency_key)
    await gateway.send(CancelTask(command_id=command_id, task_id=task_id, reason=data.reason))
    return await gateway.ask(GetTask(task_id=task_id), TaskView)


@post("/tasks/{task_id:str}/pause", status_code=200)
async def pause_task(
    task_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> TaskView:
    """Start no further experiment of a task."""
    await _require_task(gateway, identity, task_id)
    await gateway.send(PauseTask(command_id=command_id_of(idempotency_key), task_id=task_id))
    return await gateway.ask(GetTask(task_id=task_id), TaskView)


@post("/tasks/{task_id:str}/resume", status_code=200)
async def resume_task(
    task_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> TaskView:
    """Go on with a paused task."""
    await _require_task(gateway, identity, task_id)
    await gateway.send(ResumeTask(command_id=command_id_of(idempotency_key), task_id=task_id))
    return await gateway.ask(GetTask(task_id=task_id), TaskView)


@get("/tasks/{task_id:str}/experiments")
async def list_task_experiments(
    task_id: FromPath[UUID], gateway: TheGateway, monitoring: FromQuery[bool] = True
) -> dict[str, Any]:
    """A task's experiments with their `gpu_monitoring`, in the order of expansion."""
    await gateway.ask(GetTask(task_id=task_id), TaskView)
    found = await gateway.ask(ListExperiments(task_id=task_id, limit=5000), ExperimentList)
    return await _detailed(gateway, found, monitoring=monitoring)


@get("/experiments")
async def list_experiments(
    gateway: TheGateway,
    task_id: FromQuery[UUID | None] = None,
    in_states: InStates = None,
    limit: Annotated[int, QueryParameter(ge=1, le=5000)] = 500,
    monitoring: FromQuery[bool] = True,
) -> dict[str, Any]:
    """Experiments, newest task first; `monitoring=false` leaves out what results measured."""
    states = listed(in_states, ExperimentState, "state")
    query = ListExperiments(task_id=task_id, states=states, limit=limit)
    found = await gateway.ask(query, ExperimentList)
    return await _detailed(gateway, found, monitoring=monitoring)


@get("/experiments/{experiment_id:str}")
async def get_experiment(experiment_id: FromPath[UUID], gateway: TheGateway) -> dict[str, Any]:
    """One experiment: its state, measurements, GPUs, and while it waits every reason why.

    `missing` names services whose part is not there because they did not answer.
    """
    view = await gateway.ask(GetExperiment(experiment_id=experiment_id), ExperimentView)
    missing: list[str] = []
    summary = explanation = None
    try:
        summary = await _summary(gateway, view)
    except UnavailableError:
        missing.append("results")
    try:
        explanation = await _explanation(gateway, view)
    except UnavailableError:
        missing.append("scheduler")
    return experiment_detail(view, summary, explanation, missing=missing, levels=True)


async def _require_task(gateway: Gateway, identity: Identity, task_id: UUID) -> None:
    """Raises RefusedError unless the task is there and may be changed by this caller."""
    view = await gateway.ask(GetTask(task_id=task_id), TaskView)
    identity.require(view.namespace)


async def _detailed(gateway: Gateway, found: ExperimentList, *, monitoring: bool) -> dict[str, Any]:
    turn = asyncio.Semaphore(SUMMARIES_AT_ONCE)

    async def detail(view: ExperimentView) -> dict[str, Any]:
        async with turn:
            summary = await _summary(gateway, view) if monitoring else None
        return experiment_detail(view, summary, None)

    try:
        experiments = await asyncio.gather(*(detail(view) for view in found.experiments))
    except UnavailableError as error:
        log.info("experiments_without_monitoring", error=str(error))
        experiments = [
            experiment_detail(view, None, None, missing=["results"]) for view in found.experiments
        ]
    return {**msgspec.to_builtins(ExperimentList(experiments=())), "experiments": experiments}


async def _summary(gateway: Gateway, view: ExperimentView) -> SummaryView | None:
    if view.state not in MEASURED:
        return None
    return await _or_none(gateway.ask(GetSummary(experiment_id=view.experiment_id), SummaryView))


async def _explanation(gateway: Gateway, view: ExperimentView) -> Explanation | None:
    if view.state is not ExperimentState.WAITING or view.reservation_id is None:
        return None
    query = ExplainReservation(reservation_id=view.reservation_id)
    return await _or_none(gateway.ask(query, Explanation))


async def _or_none(answer: Awaitable[V]) -> V | None:
    try:
        return await answer
    except RefusedError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return None
        raise


ROUTES = [
    submit_task,
    validate_task,
    list_tasks,
    get_task,
    cancel_task,
    pause_task,
    resume_task,
    list_task_experiments,
    list_experiments,
    get_experiment,
]
