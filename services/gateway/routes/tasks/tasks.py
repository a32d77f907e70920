"""Tasks and experiments: the orchestrator's, joined to what results measured."""

from typing import Annotated, Final
from uuid import UUID

from litestar import Response
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from schemas.base import Query
from schemas.errors import Accepted, ErrorCode
from schemas.gateway import endpoints
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
from schemas.task.load_commands import ExperimentCommands
from schemas.task.task_file import TaskFile
from services.gateway.context import Gateway
from services.gateway.domain.access import Identity
from services.gateway.domain.task_report.commands import make_experiment_commands
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
    id_for,
    or_none,
    page_after,
    parse_choices,
    route,
)
from services.gateway.routes.tasks.datasets import resolve_uploads
from services.gateway.routes.tasks.joined_experiments import (
    join_experiment,
    list_details,
    summaries_of,
)
from shared.errors import RefusedError
from shared.messaging.paging import place_at

MAX_EXPERIMENTS: Final = 5000
ASK_SECONDS: Final = 5.0
PREDICTED_SECONDS: Final = 14.0  # within what clients wait


@route(endpoints.SUBMIT_TASK)
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
        task=await resolve_uploads(gateway, data, namespace),
        requester=identity.requester_for(requester, "query.requester"),
    )
    # AIConfigurator is asked before such a task is stored.
    is_predicted = data.optimization.prior == "aiconfigurator"
    await gateway.send(command, timeout_seconds=PREDICTED_SECONDS if is_predicted else ASK_SECONDS)
    view = await gateway.bus.query(GetTask(task_id=task_id), TaskView)
    location = endpoints.GET_TASK.address(task_id=task_id)
    return Response(view, status_code=201, headers={"Location": location})


@route(endpoints.LIST_TASKS)
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
    states = parse_choices(in_states, TaskState, "state")
    query = ListTasks(
        namespace=identity.namespace_to_read(namespace),
        states=states,
        archived=archived,
        limit=limit,
        cursor=cursor,
    )
    return await gateway.fetch_list(query, TaskList, "tasks")


@route(endpoints.GET_TASK)
async def get_task(task_id: FromPath[UUID], gateway: TheGateway, identity: Caller) -> TaskView:
    """Return one task, also an imported one."""
    return await find_task(gateway, identity, task_id, with_spending=True)


@route(endpoints.CANCEL_TASK)
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


@route(endpoints.DELETE_TASK)
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


@route(endpoints.DELETE_EXPERIMENT)
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


@route(endpoints.PAUSE_TASK)
async def pause_task(
    task_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> TaskView:
    """Start no further experiment of a task."""
    command = PauseTask(command_id=command_id_of(idempotency_key, identity), task_id=task_id)
    return await _change(gateway, identity, command)


@route(endpoints.RESUME_TASK)
async def resume_task(
    task_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> TaskView:
    """Start experiments of a paused task again."""
    command = ResumeTask(command_id=command_id_of(idempotency_key, identity), task_id=task_id)
    return await _change(gateway, identity, command)


@route(endpoints.LIST_TASK_EXPERIMENTS)
async def list_task_experiments(
    task_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    in_states: InStates = None,
    node_id: OnNode = None,
    monitoring: FromQuery[bool] = True,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_EXPERIMENTS)] = MAX_EXPERIMENTS,
    cursor: Cursor = None,
) -> ExperimentDetails:
    """A task's experiments with their `gpu_monitoring`, in the order of expansion."""
    if (await find_task(gateway, identity, task_id)).imported_at is not None:
        states = parse_choices(in_states, ExperimentState, "state") or tuple(ExperimentState)
        experiments = await gateway.imports.experiments(task_id)
        return ExperimentDetails(experiments=tuple(e for e in experiments if e.state in states))
    query = ListExperiments(
        task_id=task_id,
        states=parse_choices(in_states, ExperimentState, "state"),
        node_id=node_id,
        limit=limit,
        cursor=cursor,
    )
    return await list_details(gateway, query, monitoring)


@route(endpoints.LIST_TASK_SUMMARIES)
async def list_task_summaries(
    task_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    limit: AnyPageSize = None,
    cursor: Cursor = None,
) -> SummaryList:
    """List the measurements of a task's experiments so far, each joined to its GPUs' samples.

    An experiment's samples are joined within seconds of its end; the event
    `results.experiment_summarized` says when.
    """
    place = place_at(cursor, SummaryPlace)
    await gateway.task(task_id, identity)
    page, next_cursor = page_after(
        await summaries_of(gateway, task_id), lambda s: SummaryPlace(s.experiment_id), place, limit
    )
    return SummaryList(summaries=page, next_cursor=next_cursor)


@route(endpoints.LIST_EXPERIMENTS)
async def list_experiments(
    gateway: TheGateway,
    identity: Caller,
    task_id: FromQuery[UUID | None] = None,
    in_states: InStates = None,
    namespace: InNamespace = None,
    node_id: OnNode = None,
    archived: FromQuery[bool] = False,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_EXPERIMENTS)] = 500,
    cursor: Cursor = None,
    monitoring: FromQuery[bool] = True,
) -> ExperimentDetails:
    """Experiments, newest task first; `node_id` leaves those with an attempt on that node.

    Those of archived tasks only with `archived` or their `task_id`. `monitoring=false` leaves out
    what results measured.
    """
    query = ListExperiments(
        task_id=task_id,
        states=parse_choices(in_states, ExperimentState, "state"),
        namespace=identity.namespace_to_read(namespace),
        node_id=node_id,
        archived=archived,
        limit=limit,
        cursor=cursor,
    )
    return await list_details(gateway, query, monitoring)


@route(endpoints.GET_EXPERIMENT)
async def get_experiment(
    experiment_id: FromPath[UUID], gateway: TheGateway, identity: Caller
) -> ExperimentDetail:
    """Return one experiment: its state, measurements, GPUs, and while it waits every reason why.

    `missing` names services whose part is not there because they did not answer.
    """
    return await find_experiment(gateway, identity, experiment_id)


@route(endpoints.GET_COMMANDS)
async def get_commands(
    experiment_id: FromPath[UUID], gateway: TheGateway, identity: Caller
) -> ExperimentCommands:
    """Return the commands that start its engine elsewhere, and by which tools send its loads."""
    experiment = await find_experiment(gateway, identity, experiment_id)
    task = await or_none(find_task(gateway, identity, experiment.task_id))
    return make_experiment_commands(experiment, task.task if task is not None else None)


async def find_experiment(
    gateway: Gateway, identity: Identity, experiment_id: UUID
) -> ExperimentDetail:
    """Return an experiment with its measurements, also an imported one."""
    view = await or_none(gateway.experiment(experiment_id, identity))
    if view is not None:
        return await join_experiment(gateway, view, identity)
    imported = await gateway.imports.experiment(experiment_id)
    if imported is None or not identity.reads(imported.namespace):
        raise RefusedError(ErrorCode.NOT_FOUND, f"no experiment {experiment_id}")
    return imported


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
    item = await or_none(gateway.bus.query(query, view))
    if item is not None:
        identity.require(item.namespace)
    return await gateway.send(command)


async def _change(
    gateway: Gateway, identity: Identity, command: CancelTask | PauseTask | ResumeTask
) -> TaskView:
    """Raises RefusedError unless the task is there and may be changed by this caller."""
    query = GetTask(task_id=command.task_id)
    identity.require((await gateway.bus.query(query, TaskView)).namespace)
    await gateway.send(command)
    return await gateway.bus.query(query, TaskView)


async def find_task(
    gateway: Gateway, identity: Identity, task_id: UUID, *, with_spending: bool = False
) -> TaskView:
    """Return a task, also an imported one."""
    try:
        return await gateway.task(task_id, identity, with_spending=with_spending)
    except RefusedError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        task = await gateway.imports.task(task_id)
        if task is None or not identity.reads(task.namespace):
            raise
        return task
