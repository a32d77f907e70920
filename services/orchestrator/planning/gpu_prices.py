"""What GPUs cost, by the results service, which has the prices, and plans on those with one."""

from collections.abc import Sequence

from msgspec.structs import replace

from schemas.gpus.checks import CudaRules
from schemas.results.prices import GetGpuPrices, GpuPrices
from schemas.task.task_file import OptimizationSpec, TaskFile
from services.orchestrator.domain.lifecycle.budget import refuse_cost_of_clusters, with_priced_gpus
from services.orchestrator.domain.plan.executor_offers import Offer
from services.orchestrator.domain.plan.plan import Plan, make_plan
from services.orchestrator.node_names import with_node_ids
from shared.messaging.bus import Bus


async def prices_for(bus: Bus, spec: OptimizationSpec) -> GpuPrices | None:
    """None where nothing is bounded by money. Raises UnavailableError without an answer."""
    return None if spec.max_cost is None else await bus.query(GetGpuPrices(), GpuPrices)


def make_priced_plan(
    file: TaskFile, prices: GpuPrices | None, offers: Sequence[Offer], cuda_rules: CudaRules
) -> tuple[TaskFile, Plan]:
    """With the task as it is stored. Raises RefusedError, also for a cost that is not known."""
    file, notes = with_priced_gpus(file, prices)
    plan = make_plan(with_node_ids(file), offers, cuda_rules)
    refuse_cost_of_clusters(file.optimization, plan.mode)
    return file, replace(plan, notes=(*plan.notes, *notes))
