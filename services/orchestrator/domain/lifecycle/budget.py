"""What a task may spend on GPUs, in hours and in money, and whether it has."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import HOUR_SECONDS
from schemas.errors import ErrorCode
from schemas.results.prices import GpuPrices
from schemas.task.task_file import DeploymentMode, GpuPreferences, OptimizationSpec, StopReason
from services.orchestrator.domain.installation.offers import CLUSTER_MODES
from shared.errors import RefusedError
from shared.gpu.prices import price_of

SETTING: Final = "GPUSTEWARD_RESULTS_GPU_HOUR_PRICES"
SPENT: Final = {
    StopReason.MAX_GPU_HOURS: "the task has used up its GPU-hours",
    StopReason.MAX_COST: "the task has used up its max_cost",
}


class HeldGpus(Struct, frozen=True, kw_only=True):
    """What attempts on these devices have held; of shares of a GPU their sum."""

    models: tuple[str, ...]
    gpu_seconds: float


def keep_priced_gpus(
    gpus: GpuPreferences | None, max_cost: float | None, prices: GpuPrices | None
) -> tuple[GpuPreferences | None, tuple[str, ...]]:
    """Return a task's preferences for GPUs with a price alone, with notes, if it has a `max_cost`.

    Raises RefusedError where no price is known of what it requests.
    """
    if max_cost is None or prices is None:
        return gpus, ()
    if not prices.hourly:
        raise _cost_refusal(f"a price of GPUs, {SETTING} has none")
    prices_text = ", ".join(f"{name}={price:g}" for name, price in prices.hourly.items())
    gpu_preferences = gpus or GpuPreferences()
    unpriced = [name for name in gpu_preferences.models if price_of(name, prices.hourly) is None]
    if unpriced:
        raise _cost_refusal(
            f"GPUs with a price, {', '.join(unpriced)} has none in {SETTING} ({prices_text})"
        )
    models = gpu_preferences.models or tuple(prices.hourly)
    model_prices = [price_of(name, prices.hourly) or 0.0 for name in models]
    dearest, cheapest = max(model_prices), min(model_prices)
    hours = "any number of" if not cheapest else f"{max_cost / cheapest:.3g}"
    if dearest != cheapest:
        hours = f"{max_cost / dearest:.3g} to {hours}"
    note = (
        f"max_cost: {max_cost:g} {prices.currency} are {hours} GPU-hours of {', '.join(models)}; "
        "GPUs without a price are not taken"
    )
    return replace(gpu_preferences, models=models), (note,)


def refuse_cost_of_clusters(spec: OptimizationSpec, mode: DeploymentMode) -> None:
    """A cluster does not report which devices an experiment has had. Raises RefusedError."""
    if spec.max_cost is not None and mode in CLUSTER_MODES:
        raise _cost_refusal(f"no max_cost in mode {mode.value!r}, whose GPUs have no known price")


def cost_of(holds: Sequence[HeldGpus], hourly: Mapping[str, float]) -> float:
    """A model without a price, which no task requested, counts as the dearest."""
    dearest = max(hourly.values(), default=0.0)
    total = 0.0
    for hold in holds:
        model_prices = [price_of(model, hourly) for model in hold.models]
        prices = [dearest if price is None else price for price in model_prices] or [dearest]
        total += hold.gpu_seconds / HOUR_SECONDS * math.fsum(prices) / len(prices)
    return total


def find_cost(holds: Sequence[HeldGpus], hourly: Mapping[str, float]) -> float | None:
    """Return what these have cost; None where a GPU of theirs has no price, or is not known."""
    models = [model for hold in holds for model in hold.models]
    if any(price_of(model, hourly) is None for model in models) or not all(e.models for e in holds):
        return None
    return cost_of(holds, hourly)


class AttemptTimes(Struct, frozen=True, kw_only=True):
    """For how long the attempts of a task have had GPUs: the mean of those that succeeded (None:
    none has yet), and each of those under way.
    """

    mean_seconds: float | None
    running_seconds: tuple[float, ...] = ()


def seconds_left(times: AttemptTimes, unstarted: int, parallel: int) -> float | None:
    """Return how long a task may still take if each attempt takes as long as the mean has.

    `unstarted` experiments follow those under way, `parallel` at once. None without a mean. One
    that runs longer than the mean is taken to end now.
    """
    if times.mean_seconds is None:
        return None
    running = [max(0.0, times.mean_seconds - seconds) for seconds in times.running_seconds]
    width = max(1, min(parallel, len(running) + unstarted))
    work = math.fsum(running) + unstarted * times.mean_seconds
    return max([work / width, *running])


def spent_budget(
    spec: OptimizationSpec, prices: GpuPrices | None, holds: Sequence[HeldGpus]
) -> tuple[StopReason, str] | None:
    """Return the budget that is used up, with a sentence; None if none is."""
    hours = math.fsum(hold.gpu_seconds for hold in holds) / HOUR_SECONDS
    if spec.max_gpu_hours is not None and hours >= spec.max_gpu_hours:
        text = f"the task has used up its {spec.max_gpu_hours:g} GPU-hours"
        return StopReason.MAX_GPU_HOURS, text
    if spec.max_cost is None or prices is None or cost_of(holds, prices.hourly) < spec.max_cost:
        return None
    return (
        StopReason.MAX_COST,
        f"the task has used up its {spec.max_cost:g} {prices.currency}",
    )


def _cost_refusal(what: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, f"expected {what}", path="$.optimization.max_cost")
