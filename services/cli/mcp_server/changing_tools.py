"""Tools that change something, within a budget; each is a dry run unless `dry_run` is false."""

from datetime import timedelta
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from schemas.base import Epoch
from schemas.errors import ErrorCode
from schemas.gateway.tokens import Role
from schemas.gpus.gpu_request import GpuRequest, LeaseTtlSeconds
from schemas.orchestrator.views import TaskPlan, TaskView
from schemas.scheduler.reservations import Holder, ReservationState
from schemas.scheduler.views import AvailabilityView, ReservationView
from schemas.task.task_file import TaskFile
from services.cli.mcp_server.budget import (
    Budget,
    BudgetView,
    gpu_seconds_until,
    longest_gpu_seconds,
)
from services.cli.mcp_server.tool import (
    MAX_WAIT_SECONDS,
    Agent,
    Arguments,
    Change,
    Tool,
    ToolTable,
)
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.gpu.held_gpus import gpus_of
from shared.ids import new_id

CHANGING: Final[dict[str, Tool]] = {}
_tool: Final = ToolTable(CHANGING).tool

Wait = Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)]
AGENTS_LEASE_SECONDS: Final = 600.0


class AgentsRequest(GpuRequest, frozen=True, kw_only=True):
    """A request whose lease, unless it says one, is as long as an agent may think."""

    lease_ttl_seconds: LeaseTtlSeconds = AGENTS_LEASE_SECONDS


class Reserve(Change, frozen=True, kw_only=True):
    """`lease_seconds` goes before the request's own `lease_ttl_seconds`; None leaves it."""

    request: AgentsRequest = AgentsRequest()
    holder: Holder = "agent"
    lease_seconds: LeaseTtlSeconds | None = None
    wait_seconds: Wait = 0.0


class Renew(Change, frozen=True, kw_only=True):
    reservation_id: UUID
    epoch: Epoch


class Release(Change, frozen=True, kw_only=True):
    reservation_id: UUID


class Submit(Change, frozen=True, kw_only=True):
    task: dict[str, Any]


class Cancel(Change, frozen=True, kw_only=True):
    task_id: UUID
    reason: Annotated[str, Meta(max_length=1000)] = ""


class ReservationOutcome(Struct, frozen=True, kw_only=True):
    """With `dry_run` nothing was changed; `availability` then says what would be granted."""

    dry_run: bool
    budget: BudgetView
    reservation: ReservationView | None = None
    availability: AvailabilityView | None = None


class TaskOutcome(Struct, frozen=True, kw_only=True):
    """With `dry_run` nothing was changed; `plan` then says what the task would become.
    `longest_gpu_hours` is what it may use at most, which the budget has to have.
    """

    dry_run: bool
    budget: BudgetView
    task: TaskView | None = None
    plan: TaskPlan | None = None
    longest_gpu_hours: float | None = None


@_tool(Role.SUBMITTER)
async def reserve_gpus(agent: Agent, arguments: Reserve) -> ReservationOutcome:
    """Reserve GPUs for the request's `lease_ttl_seconds` from the grant on; `renew_reservation`
    with the `epoch` of the grant keeps them, `release_reservation` gives them back, else they go
    when the lease ends.
    """
    budget = _budget(agent)
    request = make_request(arguments)
    reservation_id = new_id()
    gpu_seconds = gpus_of(request) * request.lease_ttl_seconds
    if arguments.dry_run:
        budget.check(reservation_id, gpu_seconds)
        availability = await agent.client.availability(request)
        return ReservationOutcome(dry_run=True, budget=budget.view(), availability=availability)
    budget.commit(reservation_id, gpu_seconds)
    try:
        await agent.client.request_reservation(
            request, holder=arguments.holder, reservation_id=reservation_id
        )
    except RefusedError:
        budget.reduce(reservation_id, 0.0)
        raise
    view = await agent.client.await_reservation(
        reservation_id, timeout_seconds=arguments.wait_seconds
    )
    if view.state is ReservationState.REJECTED:
        budget.reduce(reservation_id, 0.0)
    return ReservationOutcome(dry_run=False, budget=budget.view(), reservation=view)


@_tool(Role.SUBMITTER)
async def renew_reservation(agent: Agent, arguments: Renew) -> ReservationOutcome:
    """Keep a reservation for another lease, counted from now."""
    budget = _budget(agent)
    view = await agent.client.reservation(arguments.reservation_id)
    end = utcnow() + timedelta(seconds=view.request.lease_ttl_seconds)
    gpu_seconds = gpu_seconds_until(view, end)
    budget.check(view.reservation_id, gpu_seconds)
    if not arguments.dry_run:
        budget.commit(view.reservation_id, gpu_seconds)
        await agent.client.renew_reservation(
            arguments.reservation_id, arguments.epoch, activate=True
        )
        view = await agent.client.reservation(arguments.reservation_id)
    return ReservationOutcome(dry_run=arguments.dry_run, budget=budget.view(), reservation=view)


@_tool(Role.SUBMITTER)
async def release_reservation(agent: Agent, arguments: Release) -> ReservationOutcome:
    """Give a reservation back, or withdraw it while it waits. Nothing may run on its GPUs then."""
    budget = _budget(agent)
    view = await agent.client.reservation(arguments.reservation_id)
    if not arguments.dry_run:
        if view.epoch is not None:
            await agent.client.release_reservation(view.reservation_id, view.epoch)
        else:
            await agent.client.cancel_reservation(view.reservation_id)
        budget.reduce(view.reservation_id, gpu_seconds_until(view, utcnow()))
        view = await agent.client.reservation(arguments.reservation_id)
    return ReservationOutcome(dry_run=arguments.dry_run, budget=budget.view(), reservation=view)


@_tool(Role.SUBMITTER)
async def submit_task(agent: Agent, arguments: Submit) -> TaskOutcome:
    """Submit a tuning task. The budget has to have what it may use at most: for each experiment its
    GPUs x `timeout_per_iteration` x `max_attempts`.
    """
    budget = _budget(agent)
    text = msgspec.json.encode(arguments.task)
    plan = await agent.client.validate_task(text)
    optimization = msgspec.json.decode(text, type=TaskFile).optimization
    requests = tuple(experiment.request for experiment in plan.experiments)
    gpu_seconds = longest_gpu_seconds(requests, optimization)
    command_id = new_id()
    budget.check(command_id, gpu_seconds)
    task = None
    if not arguments.dry_run:
        budget.commit(command_id, gpu_seconds)
        try:
            task_id = await agent.client.submit_task(text, command_id=command_id)
        except RefusedError:
            budget.reduce(command_id, 0.0)
            raise
        task = await agent.client.task(task_id)
    return TaskOutcome(
        dry_run=arguments.dry_run,
        budget=budget.view(),
        task=task,
        plan=plan if arguments.dry_run else None,
        longest_gpu_hours=gpu_seconds / 3600,
    )


@_tool(Role.SUBMITTER)
async def cancel_task(agent: Agent, arguments: Cancel) -> TaskOutcome:
    """Have a task stopped; it is over when its state says so."""
    budget = _budget(agent)
    if not arguments.dry_run:
        await agent.client.cancel_task(arguments.task_id, arguments.reason)
    task = await agent.client.task(arguments.task_id)
    return TaskOutcome(dry_run=arguments.dry_run, budget=budget.view(), task=task)


@_tool(Role.SUBMITTER)
async def show_budget(agent: Agent, _arguments: Arguments) -> BudgetView:
    """Show what is left of the GPU-hours that this server may commit for you."""
    return _budget(agent).view()


def make_request(arguments: Reserve) -> GpuRequest:
    """Return what is asked of the scheduler."""
    if arguments.lease_seconds is None:
        return arguments.request
    return replace(arguments.request, lease_ttl_seconds=arguments.lease_seconds)


def _budget(agent: Agent) -> Budget:
    if agent.budget is None:
        raise RefusedError(
            ErrorCode.FORBIDDEN,
            "expected a budget, found none; whoever starts `gpusteward mcp` gives one by"
            " --gpu-hours",
        )
    return agent.budget
