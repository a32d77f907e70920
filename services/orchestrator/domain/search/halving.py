"""Successive halving: many configurations with few requests each, the best of them with more."""

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from msgspec import Struct

from schemas.task.task_file import StopReason
from services.orchestrator.domain.search.history import Trial
from services.orchestrator.domain.search.space import Place, Space, draw_new
from services.orchestrator.domain.search.stages import Waiting

REDUCTION: Final = 3
MOST_RUNGS: Final = 4
DEFAULT_CONFIGURATIONS: Final = 27


class Rung(Struct, frozen=True, kw_only=True):
    """So many configurations, each with the requests of a whole experiment over `divisor`."""

    experiments: int
    divisor: int


class Promotion(Struct, frozen=True, kw_only=True):
    """A configuration for a rung, and why."""

    place: Place
    divisor: int
    reason: str


def rungs_of(configurations: int) -> tuple[Rung, ...]:
    """Each rung has a third of the configurations before it, with three times their requests; the
    last has all requests, and at most three configurations where there may be so many rungs.
    """
    sizes = [configurations]
    while sizes[-1] > REDUCTION and len(sizes) < MOST_RUNGS:
        sizes.append(math.ceil(sizes[-1] / REDUCTION))
    return tuple(
        Rung(experiments=size, divisor=REDUCTION ** (len(sizes) - place))
        for place, size in enumerate(sizes, start=1)
    )


def next_in_rungs(
    rungs: Sequence[Rung],
    space: Space,
    history: Sequence[Trial],
    random: Random,
    is_wanted: Callable[[Place], bool],
) -> Promotion | Waiting | StopReason:
    """A rung begins when all of the one before has ended: who goes on follows from the history
    alone.
    """
    before: list[Trial] = []
    for number, rung in enumerate(rungs, start=1):
        own = [trial for trial in history if trial.divisor == rung.divisor]
        place: Place | None = None
        if number > 1:
            chosen = _best(before, rung.experiments)
            done = {trial.place for trial in own}
            place = next((each for each in chosen if each not in done), None)
        elif len(own) < rung.experiments:
            place = draw_new(space, random, is_wanted)
        if place is not None:
            share = "all" if rung.divisor == 1 else f"1/{rung.divisor}"
            reason = f"rung {number} of {len(rungs)}, {share} of the requests"
            return Promotion(place=place, divisor=rung.divisor, reason=reason)
        if any(trial.is_open for trial in own):
            return Waiting()
        before = own
    first = sum(trial.divisor == rungs[0].divisor for trial in history)
    is_all = space.size is not None and first >= space.size
    return StopReason.SPACE_EXHAUSTED if is_all else StopReason.MAX_ITERATIONS


def _best(rung: Sequence[Trial], count: int) -> list[Place]:
    measured = [
        (trial.standing, trial.ordinal, trial.place)
        for trial in rung
        if trial.standing is not None and trial.place is not None and not trial.has_failed
    ]
    return [place for _, _, place in sorted(measured)[:count]]
