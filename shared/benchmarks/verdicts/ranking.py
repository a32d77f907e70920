"""Which of a task's experiments is best."""

import math
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.task.benchmark import BenchmarkMetrics, FailedLevel
from schemas.task.task_file import Objective
from schemas.task.trust import TrustVerdict
from shared.benchmarks.verdicts.pareto import front_numbers

MEASURES: Final = {
    Objective.MINIMIZE_LATENCY: "mean_e2e_latency",
    Objective.MAXIMIZE_THROUGHPUT: "max_total_throughput_per_gpu",
    Objective.MAXIMIZE_GOODPUT: "max_goodput_per_gpu",
    Objective.MAXIMIZE_TOKENS_PER_JOULE: "tokens_per_joule",
    Objective.MINIMIZE_COST: "cost_per_million_tokens",
    Objective.MINIMIZE_TTFT: "mean_ttft",
    Objective.MINIMIZE_TPOT: "mean_tpot",
    Objective.MAXIMIZE_LOAD: "max_load",
}


class Scored(Struct, frozen=True, kw_only=True):
    """A succeeded experiment. `excess` is how far it is from meeting the task's constraints.

    `goals` are what several objectives have of it, each to be small; empty: the score is all.
    `other_setting`: why it cannot be compared to those that ran on what most ran on.
    """

    experiment_id: UUID
    ordinal: int
    score: float | None
    failed_levels: tuple[FailedLevel, ...] = ()
    excess: float = 0.0
    goals: tuple[float, ...] = ()
    other_setting: str = ""

    @property
    def failed_loads(self) -> frozenset[tuple[str, int, str | None]]:
        """Scenario, concurrency and arrivals of each failed level."""
        return frozenset(
            (level.scenario, level.num_concurrency, level.arrivals) for level in self.failed_levels
        )


class Ranking(Struct, frozen=True, kw_only=True):
    """`ranked` has the best first. `unranked` cannot be compared with those: each of it failed at a
    load that another experiment served, has no score, or ran on another setting.
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


def goals_of(objectives: Sequence[Objective], metrics: BenchmarkMetrics) -> tuple[float, ...]:
    """A number for each objective that is to be small; infinite where nothing was measured."""
    found = [(each, score(each, metrics)) for each in objectives]
    return tuple(
        math.inf if value is None else -value if each.is_maximized else value
        for each, value in found
    )


def by_fronts(ranked: Sequence[Scored]) -> list[Scored]:
    """Ranked ones, those first that no other beats in all goals, then those that only these beat,
    and so on. Those that miss constraints stay last.
    """
    feasible = [each for each in ranked if not each.excess]
    numbers = front_numbers([each.goals for each in feasible])
    ordered = sorted(range(len(feasible)), key=lambda at: numbers[at])
    return [*(feasible[at] for at in ordered), *(each for each in ranked if each.excess)]


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
    same = [e.failed_loads for e in ordered if not e.other_setting]
    unserved = frozenset.intersection(*same) if same else None
    ranked: list[Scored] = []
    unranked: list[Scored] = []
    for each in ordered:
        is_comparable = (
            each.score is not None and each.failed_loads == unserved and not each.other_setting
        )
        (ranked if is_comparable else unranked).append(each)
    return Ranking(ranked=tuple(ranked), unranked=tuple(unranked))


def ordered_by(trust: TrustVerdict | None, ranking: Ranking) -> Ranking:
    """Return the ranking in the order of the verdict, which compares means of repeated runs; the
    same ranking without one.

    What the verdict leaves out comes after what it compared, and ranks nowhere before it.
    """
    if trust is None or trust.winner is None:
        return ranking
    order = [standing.ordinal for standing in trust.order] or [trust.winner]
    places = {ordinal: place for place, ordinal in enumerate(order)}
    everything = (*ranking.ranked, *ranking.unranked)
    compared = [experiment for experiment in everything if experiment.ordinal in places]
    return Ranking(
        ranked=(
            *sorted(compared, key=lambda experiment: places[experiment.ordinal]),
            *(experiment for experiment in ranking.ranked if experiment.ordinal not in places),
        ),
        unranked=tuple(
            experiment for experiment in ranking.unranked if experiment.ordinal not in places
        ),
    )
