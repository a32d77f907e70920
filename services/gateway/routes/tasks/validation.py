"""What a task would become here: its plan, what is missing, what it costs, when it starts."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from litestar.params import JSONBody
from msgspec.structs import replace

from schemas.orchestrator.views import PlanCost, PlannedExperiment, TaskPlan, ValidateTask
from schemas.results.prices import GetGpuPrices, GpuPrices
from schemas.scheduler.views import AvailabilityView, GetAvailability
from schemas.task.task_file import TaskFile
from services.gateway.context import Gateway
from services.gateway.domain.plan_forecast import cost_at_most, start_of
from services.gateway.request_bodies import StrictBody
from services.gateway.routes.common import UNAUDITED, Caller, InNamespace, TheGateway, post
from shared.errors import RefusedError, UnavailableError
from shared.gpu.held_gpus import gpus_of
from shared.gpu.model_memory import terms_text

PRICES_SECONDS: Final = 2.0


@post("/tasks/validate", opt=UNAUDITED, status_code=200, dto=StrictBody[TaskFile])
async def validate_task(
    data: JSONBody[TaskFile],
    gateway: TheGateway,
    identity: Caller,
    namespace: InNamespace = None,
) -> TaskPlan:
    """What a task would become here, what is missing for it, what it costs at most and when its
    largest experiment would start; nothing is stored.

    The body may be YAML, with `Content-Type: application/yaml`.
    """
    namespace = identity.namespace_to_read(namespace) or identity.namespace
    plan = await gateway.bus.query(ValidateTask(task=data, namespace=namespace), TaskPlan)
    planned = plan.experiments or plan.samples
    if plan.missing or not planned:
        return plan
    first_of = {msgspec.json.encode(each.request): each for each in reversed(planned)}
    views = {
        each.ordinal: await gateway.bus.query(
            GetAvailability(request=each.request), AvailabilityView
        )
        for each in sorted(first_of.values(), key=lambda each: each.ordinal)
    }
    largest = max(first_of.values(), key=lambda each: (gpus_of(each.request), -each.ordinal))
    return replace(
        plan,
        missing=_missing(plan, first_of.values(), views),
        cost_at_most=await _cost(gateway, data, plan, largest, views[largest.ordinal]),
        start=start_of(views[largest.ordinal]),
    )


def _missing(
    plan: TaskPlan, planned: Iterable[PlannedExperiment], views: Mapping[int, AvailabilityView]
) -> tuple[str, ...]:
    """Return what the fleet can never grant; of a search, which goes on to what is possible, only
    where nothing is.
    """
    refused = {
        each.ordinal: f"{views[each.ordinal].message}{terms_text(each.memory_estimate)}"
        for each in sorted(planned, key=lambda each: each.ordinal)
        if views[each.ordinal].impossible
    }
    if plan.experiments:
        return tuple(f"experiment {ordinal}: {message}" for ordinal, message in refused.items())
    if len(refused) < len(views):
        return ()
    return tuple(f"every configuration: {message}" for message in dict.fromkeys(refused.values()))


async def _cost(
    gateway: Gateway,
    task: TaskFile,
    plan: TaskPlan,
    largest: PlannedExperiment,
    view: AvailabilityView,
) -> PlanCost | None:
    """None also where nobody tells the prices: a plan is worth showing without."""
    if plan.gpu_hours_at_most is None:
        return None
    try:
        prices = await gateway.bus.query(GetGpuPrices(), GpuPrices, timeout_seconds=PRICES_SECONDS)
    except (RefusedError, UnavailableError):
        return None
    models = [each.name for each in view.devices] or largest.request.gpu_models
    return cost_at_most(plan.gpu_hours_at_most, models, prices, task.optimization.max_cost)
