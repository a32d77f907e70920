"""What a planned task takes: GPU time, money, and when it starts."""

from collections.abc import Iterator
from datetime import datetime

from schemas.orchestrator.views import PlanCost, PlanStart, TaskPlan
from services.cli.display.output import until

NO_PRICE = "GPUSTEWARD_RESULTS_GPU_HOUR_PRICES has no price of every GPU that it may take"


def forecast_lines(plan: TaskPlan, now: datetime | None = None) -> Iterator[str]:
    """Yield what the plan takes at most; nothing where an older platform does not tell it."""
    if plan.gpu_hours_at_most is None:
        return
    yield (
        f"GPU time: at most {plan.gpu_hours_at_most:.3g} GPU-hours, every experiment to its time"
        " limit within the budget"
    )
    if plan.start is None:  # it cannot run here, so nobody knows on which GPUs, and when
        return
    yield f"cost: {_cost_text(plan.cost_at_most)}"
    yield f"start: {_start_text(plan.start, now)}"


def _cost_text(cost: PlanCost | None) -> str:
    if cost is None:
        return f"unknown, {NO_PRICE}"
    least, most = f"{cost.least:.2f}", f"{cost.most:.2f}"
    return f"at most {most if least == most else f'{least} to {most}'} {cost.currency}"


def _start_text(start: PlanStart, now: datetime | None) -> str:
    """Say when the largest experiment would start; a smaller one may start before."""
    if start.is_now:
        return "now"
    if start.expected_at is not None:
        return f"in about {until(start.expected_at, now)}: {start.message}"
    return f"unknown: {start.message}"
