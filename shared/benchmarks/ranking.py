"""Which of a task's experiments is best."""

import math
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.benchmark import BenchmarkMetrics, FailedLevel
from schemas.task import Objective

MEASURES: Final = {
    Objective.MINIMIZE_LATENCY: "mean_e2e_latency",
    Objective.MAXIMIZE_THROUGHPUT: "max_total_throughput_per_gpu",
    Objective.MAXIMIZE_GOODPUT: "max_goodput_per_gpu",
    Objective.MAXIMIZE_TOKENS_PER_JOULE: "tokens_per_joule",
    Objective.MINIMIZE_TTFT: "mean_ttft",
    Objective.MINIMIZE_TPOT: "mean_tpot",
    Objective.MAXIMIZE_LOAD: "max_load",
}


class Scored(Struct, frozen=True, kw_only=True):
    """A succeeded experiment. `excess` is how far it is from meeting the task's constraints."""

    experiment_id: UUID
    ordinal: int
    score: float | None
    failed_levels: tuple[FailedLevel, ...] = ()
    excess: float = 0.0

    @property
    def failed_loads(self) -> frozenset[tuple[str, int, str | None]]:
        """Scenario, concurrency and arrivals of each failed level."""
        return frozenset(
            (level.scenario, level.num_concurrency, level.arrivals) for level in self.failed_levels
        )


class Ranking(Struct, frozen=True, kw_only=True):
    """`ranked` has the best first. `unranked` cannot be compared with those: each of it failed at a
    load that another experiment served, or has no score.
    """

    ranked: tuple[Scored, ...]
    unranked: tuple[Scored, ...]


def score(objective: Objective, metrics: BenchmarkMetrics) -> float | None:
    """The objective's measure, of throughput for all GPUs together where their number is unknown;
    None where nothing was measured.
    """
    value: float | None = getattr(metrics, MEASURES[objective])
    if value is None and objective is Objective.MAXIMIZE_THROUGHPUT:
        value = metrics.max_total_throughput
    return value if value is not None and math.isfinite(value) else None


def rank(objective: Objective | None, experiments: Iterable[Scored]) -> Ranking:
    """The experiments of one task: those that meet its constraints, the others by how far they are
    from it; of equal ones the first comes first.

    Scores leave failed levels out, so they compare only experiments that failed at the same loads.
    """
    sign = -1.0 if objective is not None and objective.is_maximized else 1.0
    ordered = sorted(
        experiments,
        key=lambda e: (
            len(e.failed_loads),
            e.score is None,
            e.excess,
            sign * (e.score or 0.0),
            e.ordinal,
        ),
    )
    unserved = frozenset.intersection(*(e.failed_loads for e in ordered)) if ordered else None
    ranked: list[Scored] = []
    unranked: list[Scored] = []
    for each in ordered:
        is_comparable = each.score is not None and each.failed_loads == unserved
        (ranked if is_comparable else unranked).append(each)
    return Ranking(ranked=tuple(ranked), unranked=tuple(unranked))
