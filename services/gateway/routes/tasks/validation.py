"""What a task would become here: its plan, what is missing, what it costs, when it starts."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from litestar.params import JSONBody
from msgspec.structs import replace

from schemas.gateway import endpoints
from schemas.orchestrator.views import PlanCost, PlannedExperiment, TaskPlan, ValidateTask
from schemas.results.prices import GetGpuPrices, GpuPrices
from schemas.scheduler.views import AvailabilityView, GetAvailability
from schemas.task.task_file import TaskFile
from services.gateway.context import Gateway
from services.gateway.domain.plan_forecast import cost_at_most, start_of
from services.gateway.routes.common import Caller, InNamespace, TheGateway, route
from services.gateway.routes.tasks.datasets import resolve_uploads
from shared.errors import RefusedError, UnavailableError
from shared.gpu.held_gpus import gpus_of
from shared.gpu.model_memory import terms_text

PRICES_SECONDS: Final = 2.0


@route(endpoints.VALIDATE_TASK)
async def validate_task(
    data: JSONBody[TaskFile],
    gateway: TheGateway,
    identity: Caller,
    namespace: InNamespace = None,
) -> TaskPlan:
    """Plan a task: its experiments, what is missing, its maximum cost and its expected start.

    The start is that of its largest experiment. Stores nothing. The body may be YAML, with
    `Content-Type: application/yaml`.
    """
    namespace = identity.namespace_to_read(namespace) or identity.namespace
    data = await resolve_uploads(gateway, data, namespace)
    plan = await gateway.bus.query(ValidateTask(task=data, namespace=namespace), TaskPlan)
    planned = plan.experiments or plan.samples
    if plan.missing or not planned:
        return plan
    first_of = {
        msgspec.json.encode(experiment.request): experiment for experiment in reversed(planned)
    }
    views = {
        experiment.ordinal: await gateway.bus.query(
            GetAvailability(request=experiment.request), AvailabilityView
        )
        for experiment in sorted(first_of.values(), key=lambda experiment: experiment.ordinal)
    }
    largest = max(
        first_of.values(), key=lambda experiment: (gpus_of(experiment.request), -experiment.ordinal)
    )
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
        experiment.ordinal: views[experiment.ordinal].message
        + terms_text(experiment.memory_estimate)
        for experiment in sorted(planned, key=lambda experiment: experiment.ordinal)
        if views[experiment.ordinal].impossible
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
    """Return the cost; None also while no prices can be read: a plan is worth showing without."""
    if plan.gpu_hours_at_most is None:
        return None
    try:
        prices = await gateway.bus.query(GetGpuPrices(), GpuPrices, timeout_seconds=PRICES_SECONDS)
    except (RefusedError, UnavailableError):
        return None
    models = [device.name for device in view.devices] or largest.request.gpu_models
    return cost_at_most(plan.gpu_hours_at_most, models, prices, task.optimization.max_cost)
