"""What an experiment's measurements are worth, and which experiment is best."""

import math
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.benchmark import BenchmarkMetrics
from schemas.task import Objective

_MEASURES: Final = {
    Objective.MINIMIZE_LATENCY: "mean_e2e_latency",
    Objective.MAXIMIZE_THROUGHPUT: "max_total_throughput",
    Objective.MINIMIZE_TTFT: "mean_ttft",
    Objective.MINIMIZE_TPOT: "mean_tpot",
}


class Scored(Struct, frozen=True, kw_only=True):
    """A succeeded experiment."""

    experiment_id: UUID
    ordinal: int
    score: float | None


def score(objective: Objective, metrics: BenchmarkMetrics) -> float | None:
    """The objective's measure; None where nothing was measured."""
    value: float | None = getattr(metrics, _MEASURES[objective])
    return value if value is not None and math.isfinite(value) else None


def best(objective: Objective, experiments: Iterable[Scored]) -> UUID | None:
    """The best scored experiment, the first of several equal ones; None if none has a score."""
    sign = -1 if objective is Objective.MAXIMIZE_THROUGHPUT else 1
    ranked = [
        (sign * e.score, e.ordinal, e.experiment_id) for e in experiments if e.score is not None
    ]
    return min(ranked)[2] if ranked else None
