"""Configurations that none beats in all objectives."""

import math
from collections.abc import Sequence
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.task.benchmark import BenchmarkMetrics
from schemas.task.objectives import Objective
from shared.benchmarks.verdicts.pareto import Point, front, front_numbers
from shared.benchmarks.verdicts.ranking import Scored, by_fronts, goals_of

NUMBERS = st.sampled_from([0.0, 1.0, 2.0, 3.0, math.inf])
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=12)


def beats(one: Point, other: Point) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def unbeaten(points: Sequence[Point]) -> set[int]:
    return {n for n, own in enumerate(points) if not any(beats(each, own) for each in points)}


@given(POINTS)
def test_front_is_the_unbeaten(points: list[Point]) -> None:
    found = front(points)

    assert set(found) == unbeaten(points)
    assert len(found) == len(set(found))
    assert [points[n] for n in found] == sorted(points[n] for n in found)


@given(POINTS)
def test_next_front_is_of_the_rest(points: list[Point]) -> None:
    numbers = front_numbers(points)

    for number in range(max(numbers, default=-1) + 1):
        left = [at for at, own in enumerate(numbers) if own >= number]
        first = {left[at] for at in unbeaten([points[at] for at in left])}
        assert first == {at for at, own in enumerate(numbers) if own == number}


def test_goals_are_minimized_unmeasured_worst() -> None:
    objectives = [Objective.MINIMIZE_LATENCY, Objective.MAXIMIZE_GOODPUT, Objective.MINIMIZE_COST]
    metrics = BenchmarkMetrics(mean_e2e_latency=2.0, max_goodput_per_gpu=3.0)

    assert goals_of(objectives, metrics) == (2.0, -3.0, math.inf)


def test_infeasible_stays_behind_every_front() -> None:
    def make(ordinal: int, *goals: float) -> Scored:
        return Scored(experiment_id=UUID(int=ordinal), ordinal=ordinal, score=goals[0], goals=goals)

    ranked = [make(1, 1, 9), make(2, 2, 9), make(3, 3, 1), replace(make(4, 0, 0), excess=0.1)]

    assert [each.ordinal for each in by_fronts(ranked)] == [1, 3, 2, 4]
