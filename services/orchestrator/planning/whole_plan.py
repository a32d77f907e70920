"""A task's plan with all that is known around it: presets, prices, the fleet, past tasks."""

from dataclasses import dataclass
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.results.prices import GpuPrices
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.lifecycle.budget import keep_priced_gpus, refuse_cost_of_clusters
from services.orchestrator.domain.plan.memory_rule import fit_request, memory_warnings
from services.orchestrator.domain.plan.plan import Plan, make_plan
from services.orchestrator.domain.plan.planner import choose_mode
from services.orchestrator.domain.plan.secret_names import refuse_missing_secrets
from services.orchestrator.domain.search.prior import Prior
from services.orchestrator.domain.search.warm_start import WarmStart
from services.orchestrator.ledger import secret_rows
from services.orchestrator.planning.forecaster import Answered, with_forecasts
from services.orchestrator.planning.gpu_prices import prices_for
from services.orchestrator.planning.largest_gpu import find_largest_gpu
from services.orchestrator.planning.task_presets import has_presets, take_presets
from services.orchestrator.planning.task_prior import prior_for
from services.orchestrator.planning.task_warm_start import warm_start
from shared.messaging.bus import Bus
from shared.postgres.database import Connection

NO_NOTES: Final[tuple[str, ...]] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What the installation and other services know, read before a transaction begins."""

    installation: Installation
    prices: GpuPrices | None = None
    largest_gpu_mb: int | None = None
    answered: Answered | None = None  # by AIConfigurator; None: not asked


class WholePlan(Struct, frozen=True, kw_only=True):
    """`file` is the task with its presets' parameters, on any GPUs: a clone of it may have another
    budget, or meet other prices.
    """

    file: TaskFile
    plan: Plan
    warm: WarmStart | None
    prior: Prior | None


async def ask_around(bus: Bus, task: TaskFile, installation: Installation) -> Surroundings:
    """Ask for prices and the fleet. Raises UnavailableError where nobody tells needed prices.

    `task` has its nodes by their ids, here and below.
    """
    mode = choose_mode(task, installation)
    return Surroundings(
        installation=installation,
        prices=await prices_for(bus, task.optimization),
        largest_gpu_mb=await find_largest_gpu(
            bus, task.model.id_or_path, task.gpus, mode, installation
        ),
    )


async def make_whole_plan(
    connection: Connection, namespace: str, task: TaskFile, around: Surroundings
) -> WholePlan:
    """Plan the task, and what it starts with. Raises RefusedError for what no installation could
    run.
    """
    installation, spec = around.installation, task.optimization
    if task.secrets:
        existing_names = await secret_rows.names_of(connection, namespace)
        refuse_missing_secrets(namespace, task.secrets, existing_names)
    file, preset_notes = task, NO_NOTES
    if has_presets(task):
        file, preset_notes = await take_presets(connection, namespace, task, installation)
    gpus, price_notes = keep_priced_gpus(file.gpus, spec.max_cost, around.prices)
    priced_file = replace(file, gpus=gpus)
    plan = make_plan(priced_file, installation)
    refuse_cost_of_clusters(spec, plan.mode)
    plan = with_fitting_memory(plan, file.model.id_or_path, around.largest_gpu_mb)
    warm, warm_notes = None, NO_NOTES
    if spec.warm_start:
        warm, warm_notes = await warm_start(connection, namespace, priced_file, plan.planner)
    prior, prior_notes = None, NO_NOTES
    if spec.prior is not None:
        prior, prior_notes = prior_for(priced_file, installation)
        if prior is not None and around.answered is not None:
            prior, note = await with_forecasts(connection, namespace, prior, around.answered)
            prior_notes = (note,) if prior.forecasts is not None else (*prior_notes, note)
        elif prior is not None and spec.prior == "aiconfigurator":
            prior_notes = ("prior: AIConfigurator is asked when the task is submitted",)
    notes = (*preset_notes, *plan.notes, *price_notes, *warm_notes, *prior_notes)
    return WholePlan(file=file, plan=replace(plan, notes=notes), warm=warm, prior=prior)


def with_fitting_memory(plan: Plan, model: str, largest_mb: int | None) -> Plan:
    """Return the plan with requests that the largest GPU there is can serve, with warnings."""
    planned = plan.experiments or plan.samples
    notes = memory_warnings(model, planned, largest_mb)
    return replace(
        plan,
        experiments=tuple(fit_request(experiment, largest_mb) for experiment in plan.experiments),
        samples=tuple(fit_request(sample, largest_mb) for sample in plan.samples),
        notes=(*notes, *plan.notes),
    )
