"""The weighted SLO of a task file, in its documented form.

r is by how much a time is above its threshold, as a share of it. Each r above 0 adds
weight x exp(r / steepness), which jumps by the weight at the threshold; `continuous` adds
weight x (exp(r / steepness) - 1) instead. A score that is to be small is multiplied by 1 + the sum,
one that is to be large divided by it.
"""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from schemas.task.benchmark import Distribution, LevelResult
from schemas.task.objectives import Objective
from schemas.task.slo import PenaltyForm, SloBound, SloSpec, SloVerdict
from shared.benchmarks.metrics import loads_of

DEFAULT_FAIL_RATIO: Final = 0.5
MAX_EXPONENT: Final = 500.0  # of what a float holds there is room for weights and sums


def slo_verdict(slo: SloSpec, levels: Iterable[LevelResult]) -> SloVerdict:
    """Judge the load that is farthest above each threshold; loads that are set aside do not
    count.
    """
    loads = loads_of(levels)
    penalty = 0.0
    failed_because = ""
    for name, bound, actual in _measured_bounds(slo, loads):
        ratio = (actual - bound.threshold) / bound.threshold
        penalty += penalty_of(ratio, bound.weight, slo.steepness, slo.form)
        limit = DEFAULT_FAIL_RATIO if bound.fail_ratio is None else bound.fail_ratio
        if bound.hard_fail and _exceeds(ratio, limit) and not failed_because:
            failed_because = (
                f"{name} is {actual:.4g} s, {100 * ratio:.0f} % above its threshold of "
                f"{bound.threshold:g} s: at most {100 * limit:g} % may be (hard_fail)"
            )
    return SloVerdict(penalty=min(penalty, sys.float_info.max), failed_because=failed_because)


def _exceeds(ratio: float, limit: float) -> bool:
    """Return whether a computed ratio is above its limit; what rounding alone put there is not."""
    return ratio > limit and not math.isclose(ratio, limit, rel_tol=1e-9)


def penalty_of(ratio: float, weight: float, steepness: float, form: PenaltyForm) -> float:
    """Grows with `ratio`, and stays finite."""
    if ratio <= 0:
        return 0.0
    exponent = min(ratio / steepness, MAX_EXPONENT)
    grown = math.expm1(exponent) if form is PenaltyForm.CONTINUOUS else math.exp(exponent)
    return min(weight * grown, sys.float_info.max)


def penalize(objective: Objective, score: float, penalty: float) -> float:
    """The score with its penalty, never infinite."""
    if objective.is_maximized:
        return score / (1 + penalty)
    return min(score * (1 + penalty), sys.float_info.max)


def _measured_bounds(
    slo: SloSpec, loads: Sequence[LevelResult]
) -> Iterator[tuple[str, SloBound, float]]:
    spreads = [load.stats for load in loads]
    latency = slo.latency
    if latency is not None:
        for name in ("p50", "p90", "p95", "p99"):
            bound = getattr(latency, name)
            yield from _worst(f"latency.{name}", bound, name, [s.e2e_latency for s in spreads])
    yield from _worst("ttft", slo.ttft, "mean", [s.ttft for s in spreads])
    yield from _worst("tpot", slo.tpot, "mean", [s.tpot for s in spreads])


def _worst(
    name: str, bound: SloBound | None, statistic: str, spreads: Sequence[Distribution | None]
) -> Iterator[tuple[str, SloBound, float]]:
    values = [getattr(spread, statistic) for spread in spreads if spread is not None]
    if bound is not None and values:
        yield name, bound, max(values)
