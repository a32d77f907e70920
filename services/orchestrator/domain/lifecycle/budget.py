"""What a task may spend on GPUs, in hours and in money, and whether it has."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.results.prices import GpuPrices
from schemas.task.task_file import (
    DeploymentMode,
    GpuPreferences,
    OptimizationSpec,
    StopReason,
    TaskFile,
)
from services.orchestrator.domain.plan.executor_offers import CLUSTER_MODES
from shared.errors import RefusedError
from shared.gpu.prices import price_of

SETTING: Final = "GPUSTEWARD_RESULTS_GPU_HOUR_PRICES"
SPENT: Final = {
    StopReason.MAX_GPU_HOURS: "the task has used up its GPU-hours",
    StopReason.MAX_COST: "the task has used up its max_cost",
}
HOUR_SECONDS: Final = 3600


class HeldGpus(Struct, frozen=True, kw_only=True):
    """What attempts on these devices have held; of shares of a GPU their sum."""

    models: tuple[str, ...]
    gpu_seconds: float


def with_priced_gpus(task: TaskFile, prices: GpuPrices | None) -> tuple[TaskFile, tuple[str, ...]]:
    """The task on GPUs with a price alone, with notes, if it has a `max_cost`.

    Raises RefusedError where no price is known of what it requests.
    """
    most = task.optimization.max_cost
    if most is None or prices is None:
        return task, ()
    if not prices.hourly:
        raise _refused(f"a price of GPUs, {SETTING} has none")
    known = ", ".join(f"{name}={price:g}" for name, price in prices.hourly.items())
    wanted = task.gpus or GpuPreferences()
    unpriced = [name for name in wanted.models if price_of(name, prices.hourly) is None]
    if unpriced:
        raise _refused(f"GPUs with a price, {', '.join(unpriced)} has none in {SETTING} ({known})")
    models = wanted.models or tuple(prices.hourly)
    found = [price_of(name, prices.hourly) or 0.0 for name in models]
    dearest, cheapest = max(found), min(found)
    hours = "any number of" if not cheapest else f"{most / cheapest:.3g}"
    if dearest != cheapest:
        hours = f"{most / dearest:.3g} to {hours}"
    note = (
        f"max_cost: {most:g} {prices.currency} are {hours} GPU-hours of {', '.join(models)}; "
        "GPUs without a price are not taken"
    )
    return replace(task, gpus=replace(wanted, models=models)), (note,)


def refuse_cost_of_clusters(spec: OptimizationSpec, mode: DeploymentMode) -> None:
    """A cluster does not report which devices an experiment has had. Raises RefusedError."""
    if spec.max_cost is not None and mode in CLUSTER_MODES:
        raise _refused(f"no max_cost in mode {mode.value!r}, whose GPUs have no known price")


def cost_of(held: Sequence[HeldGpus], hourly: Mapping[str, float]) -> float:
    """A model without a price, which no task requested, counts as the dearest."""
    dearest = max(hourly.values(), default=0.0)
    total = 0.0
    for each in held:
        found = [price_of(model, hourly) for model in each.models]
        prices = [dearest if price is None else price for price in found] or [dearest]
        total += each.gpu_seconds / HOUR_SECONDS * math.fsum(prices) / len(prices)
    return total


def known_cost(held: Sequence[HeldGpus], hourly: Mapping[str, float]) -> float | None:
    """Return what these have cost; None where a GPU of theirs has no price, or is not known."""
    models = [model for each in held for model in each.models]
    if any(price_of(model, hourly) is None for model in models) or not all(e.models for e in held):
        return None
    return cost_of(held, hourly)


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
    spec: OptimizationSpec, prices: GpuPrices | None, held: Sequence[HeldGpus]
) -> tuple[StopReason, str] | None:
    """Which budget is used up, with a sentence; None: none is."""
    hours = math.fsum(each.gpu_seconds for each in held) / HOUR_SECONDS
    if spec.max_gpu_hours is not None and hours >= spec.max_gpu_hours:
        text = f"the task has used up its {spec.max_gpu_hours:g} GPU-hours"
        return StopReason.MAX_GPU_HOURS, text
    if spec.max_cost is None or prices is None or cost_of(held, prices.hourly) < spec.max_cost:
        return None
    return (
        StopReason.MAX_COST,
        f"the task has used up its {spec.max_cost:g} {prices.currency}",
    )


def _refused(what: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, f"expected {what}", path="$.optimization.max_cost")
