"""Whether the configuration that a task declares best is, and what the repeats for it cost.

Compared with three runs of every configuration, of which the best mean wins. Declared right: it is
the best, or truly behind it by no more than two runs of the same configuration differ (the noise
floor, which is known here).
"""

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.objectives import Objective
from schemas.task.trust import RunInfo
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.search.history import RunRecord
from services.orchestrator.domain.search.trust import next_checks, verdict
from shared.benchmarks.verdicts.ranking import Scored

FIXED_REPEATS: Final = 3
OBJECTIVE: Final = Objective.MINIMIZE_LATENCY
_PAIRS: Final = 1.96 * math.sqrt(2)

Truths = Sequence[float | None]


def winner_figures(
    surfaces: Sequence[Callable[[Point], float | None]], points: Sequence[Point], noise: float
) -> Mapping[str, float]:
    """Of a grid of `points` on every surface; an experiment takes as long as any other."""
    gpus = [int(point.parameters["tensor-parallel-size"]) for point in points]
    right, exact, fixed_right, spent = [], [], [], []
    for seed, surface in enumerate(surfaces):
        truths = [surface(point) for point in points]
        best = min(truth for truth in truths if truth is not None)
        winner, seconds = _declared(truths, points, gpus, random.Random(f"trust:{seed}"), noise)
        fixed = _fixed(truths, random.Random(f"fixed:{seed}"), noise)
        right.append(_regret(truths[winner], best) <= _PAIRS * noise)
        exact.append(truths[winner] == best)
        fixed_right.append(_regret(truths[fixed], best) <= _PAIRS * noise)
        spent.append(seconds / (FIXED_REPEATS * sum(gpus)))
    return {
        "winner_right_percent": _percent(right),
        "winner_is_the_very_best_percent": _percent(exact),
        "winner_right_percent_of_three_repeats": _percent(fixed_right),
        "gpu_seconds_over_three_repeats": round(statistics.mean(spent), 3),
    }


def _declared(
    truths: Truths,
    points: Sequence[Point],
    gpus: Sequence[int],
    drawn: random.Random,
    noise: float,
) -> tuple[int, float]:
    """The winner, counted from 0, and the GPU-seconds for it."""
    past: list[RunRecord] = []
    seconds = 0.0

    def measure(number: int, run: RunInfo) -> None:
        nonlocal seconds
        seconds += gpus[number]
        truth = truths[number]
        score = truth * (1 + drawn.gauss(0, noise)) if truth is not None else None
        past.append(_past(len(past) + 1, points[number], score, run))

    for number in range(len(points)):
        measure(number, RunInfo())
    while checks := next_checks(OBJECTIVE, past, 1):
        for check in checks:
            run = RunInfo(role=check.role, repeats=check.repeats, seed=check.seed)
            measure(check.repeats - 1, run)
    return (verdict(OBJECTIVE, past).winner or 0) - 1, seconds


def _past(ordinal: int, point: Point, score: float | None, run: RunInfo) -> RunRecord:
    if score is None:
        state, scored = ExperimentState.FAILED, None
    else:
        state = ExperimentState.SUCCEEDED
        scored = Scored(experiment_id=UUID(int=ordinal), ordinal=ordinal, score=score)
    return RunRecord(ordinal=ordinal, state=state, parameters=point.show(), scored=scored, run=run)


def _fixed(truths: Truths, drawn: random.Random, noise: float) -> int:
    means = {
        number: statistics.mean(truth * (1 + drawn.gauss(0, noise)) for _ in range(FIXED_REPEATS))
        for number, truth in enumerate(truths)
        if truth is not None
    }
    return min(means, key=lambda number: means[number])


def _regret(truth: float | None, best: float) -> float:
    return math.inf if truth is None else truth / best - 1


def _percent(held: Sequence[bool]) -> float:
    return round(100 * sum(held) / len(held), 1)
