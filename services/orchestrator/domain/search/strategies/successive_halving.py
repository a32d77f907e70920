"""Successive halving: many configurations with few requests each, the best of them with more."""

import math
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from schemas.task.task_file import OptimizationSpec, StopReason
from services.orchestrator.domain.configurations import MAX_TASK_EXPERIMENTS
from services.orchestrator.domain.search.history import Trial
from services.orchestrator.domain.search.search import (
    Answer,
    Search,
    SearchStrategy,
    Situation,
    Waiting,
)
from services.orchestrator.domain.search.space import Place, Space, draw_new

REDUCTION: Final = 3
MAX_RUNGS: Final = 4
DEFAULT_CONFIGURATIONS: Final = 27


class Rung(Struct, frozen=True, kw_only=True):
    """So many configurations, each with the requests of a whole experiment over `divisor`."""

    experiments: int
    divisor: int


class SuccessiveHalving:
    """Begins a rung when all of the one before has ended: who goes on follows from the history."""

    avoids_crashes = True

    def count_experiments(self, spec: OptimizationSpec, space: Space) -> int:
        return sum(rung.experiments for rung in _make_rungs(spec, space))

    def next(self, situation: Situation) -> Answer:
        rungs = _make_rungs(situation.search.spec, situation.search.space)
        promoted: list[Place] = []
        for number, rung in enumerate(rungs, start=1):
            trials = [trial for trial in situation.own_trials if trial.divisor == rung.divisor]
            if number > 1:
                places = {trial.place for trial in trials}
                place = next((place for place in promoted if place not in places), None)
            elif len(trials) < rung.experiments:
                place = draw_new(
                    situation.search.space,
                    situation.random,
                    situation.is_promising,
                    situation.turn,
                )
            else:
                place = None
            if place is not None:
                reason = f"rung {number} of {len(rungs)}, {_share_text(rung)} of the requests"
                return situation.propose(place, reason, rung.divisor)
            if any(trial.is_open for trial in trials):
                return Waiting()
            if number < len(rungs):
                promoted = _best_places(trials, rungs[number].experiments)
        return _stop(situation, rungs[0])

    def describe(self, search: Search) -> str:
        sizes = [
            f"{rung.experiments} with {_requests_text(rung)}"
            for rung in _make_rungs(search.spec, search.space)
        ]
        return f"{sizes[0]} drawn at random, then the best of each rung: {', '.join(sizes[1:])}"


def make_rungs(configurations: int) -> tuple[Rung, ...]:
    """Return rungs, each with a third of the configurations before it and three times the requests.

    The last has all requests, and at most three configurations where there may be so many rungs.
    """
    sizes = [configurations]
    while sizes[-1] > REDUCTION and len(sizes) < MAX_RUNGS:
        sizes.append(math.ceil(sizes[-1] / REDUCTION))
    return tuple(
        Rung(experiments=size, divisor=REDUCTION ** (len(sizes) - place))
        for place, size in enumerate(sizes, start=1)
    )


def _make_rungs(spec: OptimizationSpec, space: Space) -> tuple[Rung, ...]:
    configurations = min(spec.max_iterations or DEFAULT_CONFIGURATIONS, MAX_TASK_EXPERIMENTS // 2)
    return make_rungs(min(configurations, space.size or configurations))


def _best_places(trials: Sequence[Trial], count: int) -> list[Place]:
    measured = [
        (trial.standing, trial.ordinal, trial.place)
        for trial in trials
        if trial.standing is not None and trial.place is not None and not trial.has_failed
    ]
    return [place for _, _, place in sorted(measured)[:count]]


def _stop(situation: Situation, first: Rung) -> StopReason:
    count = sum(trial.divisor == first.divisor for trial in situation.own_trials)
    size = situation.search.space.size
    is_all = size is not None and count >= size
    return StopReason.SPACE_EXHAUSTED if is_all else StopReason.MAX_ITERATIONS


def _share_text(rung: Rung) -> str:
    return "all" if rung.divisor == 1 else f"1/{rung.divisor}"


def _requests_text(rung: Rung) -> str:
    return "all requests" if rung.divisor == 1 else f"1/{rung.divisor} of the requests"


STRATEGY: Final[SearchStrategy] = SuccessiveHalving()
