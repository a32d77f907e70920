"""A task's plan with all that is known around it: presets, prices, the fleet, past tasks."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from schemas.gpus.checks import CudaRules
from schemas.orchestrator.experiments import SubmitTask, TaskState
from schemas.results.prices import GpuPrices
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.plan.executor_offers import Offer
from services.orchestrator.domain.plan.memory_rule import fitted, memory_warnings
from services.orchestrator.domain.plan.plan import Plan
from services.orchestrator.domain.records import Task
from services.orchestrator.domain.search.prior import Prior
from services.orchestrator.domain.search.warm import WarmStart
from services.orchestrator.ledger.preset_rows import with_presets
from services.orchestrator.planning.gpu_prices import make_priced_plan, prices_for
from services.orchestrator.planning.largest_gpu import find_largest_gpu
from services.orchestrator.planning.prior import prior_for
from services.orchestrator.planning.warm_start import warm_start
from shared.messaging.bus import Bus
from shared.postgres.database import Connection


class Around(Struct, frozen=True, kw_only=True):
    """What others know, asked before a transaction begins."""

    offers: tuple[Offer, ...]
    cuda_rules: CudaRules = CudaRules.STRICT
    prices: GpuPrices | None = None
    largest_gpu_mb: int | None = None


class WholePlan(Struct, frozen=True, kw_only=True):
    """`asked` is the task as it is stored, with its presets' parameters; `file` as it is planned,
    on GPUs with a price alone where it has a `max_cost`.
    """

    asked: TaskFile
    file: TaskFile
    plan: Plan
    around: Around
    warm: WarmStart | None
    prior: Prior | None

    def new_task(self, command: SubmitTask, now: datetime) -> Task:
        """Return the task as it is stored: without the priced models, as a clone of it may have
        another budget, or meet other prices.
        """
        plan = self.plan
        return Task(
            task_id=command.task_id,
            namespace=command.namespace,
            task_name=command.task.task_name,
            state=TaskState.ACCEPTED,
            mode=plan.mode,
            file=self.asked,
            created_at=now,
            notes=plan.notes,
            benchmark_tool=plan.benchmark_tool,
            experiments_at_most=plan.experiments_at_most,
            stop_reason=plan.stop_reason,
            cut=plan.cut,
            warm=self.warm,
            prices=self.around.prices,
            prior=self.prior,
            largest_gpu_mb=self.around.largest_gpu_mb,
            requester=command.requester,
        )


async def ask_around(
    bus: Bus, task: TaskFile, offers: Sequence[Offer], cuda_rules: CudaRules
) -> Around:
    """Ask for prices and the fleet. Raises UnavailableError where nobody tells needed prices."""
    return Around(
        offers=tuple(offers),
        cuda_rules=cuda_rules,
        prices=await prices_for(bus, task.optimization),
        largest_gpu_mb=await find_largest_gpu(bus, task, offers),
    )


async def make_whole_plan(
    connection: Connection, namespace: str, task: TaskFile, around: Around
) -> WholePlan:
    """Plan the task, and what it starts with. Raises RefusedError for what no installation could
    run.
    """
    offers = around.offers
    asked, notes = await with_presets(connection, namespace, task, offers)
    file, plan = make_priced_plan(asked, around.prices, offers, around.cuda_rules)
    plan = with_fitting_memory(plan, file.model.id_or_path, around.largest_gpu_mb)
    warm, known = await warm_start(connection, namespace, file, offers)
    prior, foreseen = prior_for(file, offers)
    return WholePlan(
        asked=asked,
        file=file,
        plan=replace(plan, notes=(*notes, *plan.notes, *known, *foreseen)),
        around=around,
        warm=warm,
        prior=prior,
    )


def with_fitting_memory(plan: Plan, model: str, largest_mb: int | None) -> Plan:
    """Return the plan with requests that the largest GPU there is can serve, with warnings."""
    planned = plan.experiments or plan.samples
    notes = memory_warnings(model, planned, largest_mb)
    return replace(
        plan,
        experiments=tuple(fitted(each, largest_mb) for each in plan.experiments),
        samples=tuple(fitted(each, largest_mb) for each in plan.samples),
        notes=(*notes, *plan.notes),
    )
