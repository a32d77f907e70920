"""Tasks and experiments: the orchestrator's, joined to what results measured."""

from typing import Annotated, Final
from uuid import UUID

from litestar import Response
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from schemas.base import Query
from schemas.errors import Accepted, ErrorCode
from schemas.gateway.views import Cause, ExperimentDetail, ExperimentDetails
from schemas.orchestrator.deletion import DeleteExperiment, DeleteTask
from schemas.orchestrator.experiments import (
    CancelTask,
    ExperimentState,
    PauseTask,
    ResumeTask,
    SubmitTask,
    TaskState,
)
from schemas.orchestrator.views import (
    ExperimentView,
    GetExperiment,
    GetTask,
    ListExperiments,
    ListTasks,
    TaskList,
    TaskView,
)
from schemas.results.measurements import SummaryList
from schemas.task.task_file import TaskFile
from services.gateway.context import Gateway
from services.gateway.domain.access import Identity
from services.gateway.request_bodies import StrictBody
from services.gateway.routes.common import (
    AnyPageSize,
    Caller,
    Cursor,
    ExpectedRevision,
    IdempotencyKey,
    InNamespace,
    InStates,
    OfPerson,
    OnNode,
    PageSize,
    SummaryPlace,
    TheGateway,
    command_id_of,
    delete,
    get,
    id_for,
    listed,
    or_none,
    page_after,
    post,
)
from services.gateway.routes.tasks.joined_experiments import detailed, joined, summaries_of
from shared.errors import RefusedError
from shared.messaging.paging import place_at

MOST_EXPERIMENTS: Final = 5000


@post("/tasks", dto=StrictBody[TaskFile])
async def submit_task(
    data: JSONBody[TaskFile],
    gateway: TheGateway,
    identity: Caller,
    task_id: FromQuery[UUID | None] = None,
    namespace: InNamespace = None,
    requester: OfPerson = None,
    idempotency_key: IdempotencyKey = None,
) -> Response[TaskView]:
    """Store a task and run it. `task_id` may be chosen by the sender.

    `requester` absent is the caller itself; only an admin names somebody else.

    The body may be YAML, with `Content-Type: application/yaml`.
    """
    namespace = identity.namespace_for(namespace)
    command_id = command_id_of(idempotency_key, identity, namespace)
    task_id = task_id or id_for(command_id)
    command = SubmitTask(
        command_id=command_id,
        task_id=task_id,
        namespace=namespace,
        task=data,
        requester=identity.requester_for(requester, "query.requester"),
    )
    await gateway.send(command)
    view = await gateway.bus.query(GetTask(task_id=task_id), TaskView)
    return Response(view, status_code=201, headers={"Location": f"/api/v1/tasks/{task_id}"})


@get("/tasks")
async def list_tasks(
    gateway: TheGateway,
    identity: Caller,
    namespace: InNamespace = None,
    in_states: InStates = None,
    archived: FromQuery[bool] = False,
    limit: PageSize = 100,
    cursor: Cursor = None,
) -> TaskList:
    """Tasks, newest first; `state` is a comma-separated list.

    Those that finished long ago (the orchestrator's `archive_after_days`) only with `archived`.
    """
    states = listed(in_states, TaskState, "state")
    query = ListTasks(
        namespace=identity.namespace_to_read(namespace),
        states=states,
        archived=archived,
        limit=limit,
        cursor=cursor,
    )
    return await gateway.listed(query, TaskList, "tasks")


@get("/tasks/{task_id:str}")
async def get_task(task_id: FromPath[UUID], gateway: TheGateway, identity: Caller) -> TaskView:
    """One task, also one that was imported."""
    return await known_task(gateway, identity, task_id, with_spending=True)


@post("/tasks/{task_id:str}/cancel", status_code=200, dto=StrictBody[Cause])
async def cancel_task(
    task_id: FromPath[UUID],
    data: JSONBody[Cause],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> TaskView:
    """Stop a task. It has ended when its state says so."""
    command_id = command_id_of(idempotency_key, identity)
    command = CancelTask(command_id=command_id, task_id=task_id, reason=data.reason)
    return await _change(gateway, identity, command)


@delete("/tasks/{task_id:str}", status_code=200)
async def delete_task(
    task_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    expected_revision: ExpectedRevision,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Delete a finished task with its experiments and their measurements.

    Its events and the GPU hours that it used stay on record.
    """
    command = DeleteTask(
        command_id=command_id_of(idempotency_key, identity),
        task_id=task_id,
        expected_revision=expected_revision,
    )
    if await gateway.imports.delete(task_id, identity):
        return Accepted(command_id=command.command_id)
    return await _delete(gateway, identity, command, GetTask(task_id=task_id), TaskView)


@delete("/experiments/{experiment_id:str}", status_code=200)
async def delete_experiment(
    experiment_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    expected_revision: ExpectedRevision,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Delete one experiment of a finished task with its measurements."""
    command = DeleteExperiment(
        command_id=command_id_of(idempotency_key, identity),
        experiment_id=experiment_id,
        expected_revision=expected_revision,
    )
    if await gateway.imports.delete(experiment_id, identity):
        return Accepted(command_id=command.command_id)
    query = GetExperiment(experiment_id=experiment_id)
    return await _delete(gateway, identity, command, query, ExperimentView)


@post("/tasks/{task_id:str}/pause", status_code=200)
async def pause_task(
    task_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> TaskView:
    """Start no further experiment of a task."""
    command = PauseTask(command_id=command_id_of(idempotency_key, identity), task_id=task_id)
    return await _change(gateway, identity, command)


@post("/tasks/{task_id:str}/resume", status_code=200)
async def resume_task(
    task_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> TaskView:
    """Start experiments of a paused task again."""
    command = ResumeTask(command_id=command_id_of(idempotency_key, identity), task_id=task_id)
    return await _change(gateway, identity, command)


@get("/tasks/{task_id:str}/experiments")
async def list_task_experiments(
    task_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    in_states: InStates = None,
    node_id: OnNode = None,
    monitoring: FromQuery[bool] = True,
    limit: Annotated[int, QueryParameter(ge=1, le=MOST_EXPERIMENTS)] = MOST_EXPERIMENTS,
    cursor: Cursor = None,
) -> ExperimentDetails:
    """A task's experiments with their `gpu_monitoring`, in the order of expansion."""
    if (await known_task(gateway, identity, task_id)).imported_at is not None:
        wanted = listed(in_states, ExperimentState, "state") or tuple(ExperimentState)
        found = await gateway.imports.experiments(task_id)
        return ExperimentDetails(experiments=tuple(e for e in found if e.state in wanted))
    query = ListExperiments(
        task_id=task_id,
        states=listed(in_states, ExperimentState, "state"),
        node_id=node_id,
        limit=limit,
        cursor=cursor,
    )
    return await detailed(gateway, query, monitoring)


@get("/tasks/{task_id:str}/summaries")
async def list_task_summaries(
    task_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    limit: AnyPageSize = None,
    cursor: Cursor = None,
) -> SummaryList:
    """What was measured of a task's experiments so far, each joined to its GPUs' samples.

    An experiment's samples are joined within seconds of its end; the event
    `results.experiment_summarized` says when.
    """
    after = place_at(cursor, SummaryPlace)
    await gateway.task(task_id, identity)
    page, next_cursor = page_after(
        await summaries_of(gateway, task_id), lambda s: SummaryPlace(s.experiment_id), after, limit
    )
    return SummaryList(summaries=page, next_cursor=next_cursor)


@get("/experiments")
async def list_experiments(
    gateway: TheGateway,
    identity: Caller,
    task_id: FromQuery[UUID | None] = None,
    in_states: InStates = None,
    namespace: InNamespace = None,
    node_id: OnNode = None,
    archived: FromQuery[bool] = False,
    limit: Annotated[int, QueryParameter(ge=1, le=MOST_EXPERIMENTS)] = 500,
    cursor: Cursor = None,
    monitoring: FromQuery[bool] = True,
) -> ExperimentDetails:
    """Experiments, newest task first; `node_id` leaves those with an attempt on that node.

    Those of archived tasks only with `archived` or their `task_id`. `monitoring=false` leaves out
    what results measured.
    """
    query = ListExperiments(
        task_id=task_id,
        states=listed(in_states, ExperimentState, "state"),
        namespace=identity.namespace_to_read(namespace),
        node_id=node_id,
        archived=archived,
        limit=limit,
        cursor=cursor,
    )
    return await detailed(gateway, query, monitoring)


@get("/experiments/{experiment_id:str}")
async def get_experiment(
    experiment_id: FromPath[UUID], gateway: TheGateway, identity: Caller
) -> ExperimentDetail:
    """One experiment: its state, measurements, GPUs, and while it waits every reason why.

    `missing` names services whose part is not there because they did not answer.
    """
    view = await or_none(gateway.experiment(experiment_id, identity))
    if view is None:
        imported = await gateway.imports.experiment(experiment_id)
        if imported is not None and identity.reads(imported.namespace):
            return imported
        raise RefusedError(ErrorCode.NOT_FOUND, f"no experiment {experiment_id}")
    return await joined(gateway, view, identity)


async def _delete(
    gateway: Gateway,
    identity: Identity,
    command: DeleteTask | DeleteExperiment,
    query: Query,
    view: type[TaskView | ExperimentView],
) -> Accepted:
    """Raises RefusedError unless this caller may change it.

    What is gone is left to its owner, who knows a command that has been answered already.
    """
    found = await or_none(gateway.bus.query(query, view))
    if found is not None:
        identity.require(found.namespace)
    return await gateway.send(command)


async def _change(
    gateway: Gateway, identity: Identity, command: CancelTask | PauseTask | ResumeTask
) -> TaskView:
    """Raises RefusedError unless the task is there and may be changed by this caller."""
    query = GetTask(task_id=command.task_id)
    identity.require((await gateway.bus.query(query, TaskView)).namespace)
    await gateway.send(command)
    return await gateway.bus.query(query, TaskView)


async def known_task(
    gateway: Gateway, identity: Identity, task_id: UUID, *, with_spending: bool = False
) -> TaskView:
    """Also one that was imported."""
    try:
        return await gateway.task(task_id, identity, with_spending=with_spending)
    except RefusedError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        found = await gateway.imports.task(task_id)
        if found is None or not identity.reads(found.namespace):
            raise
        return found
