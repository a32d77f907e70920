"""What GPUs cost, by the results service, which has the prices, and plans on those with one."""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from schemas.gpus.checks import CudaRules
from schemas.results.prices import GetGpuPrices, GpuPrices
from schemas.task.task_file import OptimizationSpec, TaskFile
from services.orchestrator.domain.lifecycle.budget import refuse_cost_of_clusters, with_priced_gpus
from services.orchestrator.domain.plan.executor_offers import Offer
from services.orchestrator.domain.plan.plan import Plan, make_plan
from services.orchestrator.node_names import with_node_ids
from shared.errors import RefusedError, UnavailableError
from shared.messaging.bus import Bus

CACHE_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 1.0


@dataclass(slots=True)
class PriceCache:
    """The prices as they were asked for last, so that looking at a task asks for none each time."""

    bus: Bus
    _prices: GpuPrices | None = None
    _is_asked_again_at: float = -math.inf

    async def prices(self) -> GpuPrices | None:
        """Return the prices of the last minute; None while the results service does not answer."""
        now = asyncio.get_running_loop().time()
        if now >= self._is_asked_again_at:
            self._is_asked_again_at = now + CACHE_SECONDS
            with suppress(UnavailableError, RefusedError):
                self._prices = await self.bus.query(
                    GetGpuPrices(), GpuPrices, timeout_seconds=ANSWER_SECONDS
                )
        return self._prices


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
