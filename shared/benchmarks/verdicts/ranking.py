"""Which of a task's experiments is best."""

import math
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.task.benchmark import BenchmarkMetrics, FailedLevel
from schemas.task.objectives import Objective
from schemas.task.trust import TrustVerdict
from shared.benchmarks.verdicts.pareto import front_numbers

MEASURES: Final = {objective: objective.traits.measure for objective in Objective}


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
    traits = objective.traits
    value: float | None = getattr(metrics, traits.measure)
    if value is None and traits.measure_of_all_gpus is not None:
        value = getattr(metrics, traits.measure_of_all_gpus)
    return value if value is not None and math.isfinite(value) else None


def compute_error_percent(predicted: float, measured: float) -> float:
    """Return by how many percent of what was measured a prediction was off."""
    return 100 * abs(predicted - measured) / abs(measured) if measured else math.inf


def goals_of(objectives: Sequence[Objective], metrics: BenchmarkMetrics) -> tuple[float, ...]:
    """A number for each objective that is to be small; infinite where nothing was measured."""
    scores = [(objective, score(objective, metrics)) for objective in objectives]
    return tuple(
        math.inf if value is None else -value if objective.is_maximized else value
        for objective, value in scores
    )


def by_fronts(ranked: Sequence[Scored]) -> list[Scored]:
    """Ranked ones, those first that no other beats in all goals, then those that only these beat,
    and so on. Those that miss constraints stay last.
    """
    feasible = [scored for scored in ranked if not scored.excess]
    numbers = front_numbers([scored.goals for scored in feasible])
    ordered = sorted(range(len(feasible)), key=lambda at: numbers[at])
    return [*(feasible[at] for at in ordered), *(scored for scored in ranked if scored.excess)]


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
    failed_loads = [e.failed_loads for e in ordered if not e.other_setting]
    unserved = frozenset.intersection(*failed_loads) if failed_loads else None
    ranked: list[Scored] = []
    unranked: list[Scored] = []
    for scored in ordered:
        is_comparable = (
            scored.score is not None
            and scored.failed_loads == unserved
            and not scored.other_setting
        )
        (ranked if is_comparable else unranked).append(scored)
    return Ranking(ranked=tuple(ranked), unranked=tuple(unranked))


def order_by_trust(trust: TrustVerdict | None, ranking: Ranking) -> Ranking:
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
