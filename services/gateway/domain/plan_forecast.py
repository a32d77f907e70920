"""What a planned task costs at most, and when it may start."""

from collections.abc import Sequence

from schemas.orchestrator.views import PlanCost, PlanStart
from schemas.results.prices import GpuPrices
from schemas.scheduler.views import AvailabilityView
from shared.gpu.prices import price_of


def cost_at_most(
    gpu_hours: float, models: Sequence[str], prices: GpuPrices, max_cost: float | None
) -> PlanCost | None:
    """Return the cost by the cheapest and by the dearest of the GPU models that the task may take,
    all that have a price where none is named; None where one of them has no price.
    """
    gpu_prices = [price_of(name, prices.hourly) for name in models] or list(prices.hourly.values())
    known_prices = [price for price in gpu_prices if price is not None]
    if not known_prices or len(known_prices) < len(gpu_prices):
        return None
    bound = float("inf") if max_cost is None else max_cost
    return PlanCost(
        least=min(gpu_hours * min(known_prices), bound),
        most=min(gpu_hours * max(known_prices), bound),
        currency=prices.currency,
    )


def start_of(view: AvailabilityView) -> PlanStart:
    """Return when a request would be granted, by the scheduler's answer."""
    return PlanStart(
        is_now=view.available, expected_at=view.expected_start_at, message=view.message
    )
