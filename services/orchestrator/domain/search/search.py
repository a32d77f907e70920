"""A search: what it chooses from, what it has tried, and what a strategy answers."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, Protocol

from msgspec import Struct

from schemas.task.strategies import Strategy
from schemas.task.task_file import OptimizationSpec, StopReason
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.search.history import Trial
from services.orchestrator.domain.search.prior import Prior
from services.orchestrator.domain.search.space import Place, Space

DEFAULT_EXPERIMENTS: Final = 50

IsPossible = Callable[[Point], bool]


class Search(Struct, frozen=True, kw_only=True):
    """How a task is searched: at most `experiments` configurations of `space`."""

    spec: OptimizationSpec
    space: Space
    experiments: int
    seed: int
    prior: Prior | None = None

    @property
    def strategy(self) -> Strategy:
        return self.spec.strategy


class Proposal(Struct, frozen=True, kw_only=True):
    """A configuration, and why it is the next."""

    ordinal: int
    point: Point
    reason: str
    divisor: int = 1  # of the requests


class Waiting(Struct, frozen=True):
    """The next configuration depends on one that is still measured."""


Answer = Proposal | Waiting | StopReason


class Situation(Struct, frozen=True, kw_only=True):
    """What a strategy decides by: the search, what it has tried and what it may try.

    `own_trials` are the task's, `past` those of earlier tasks (ordinals below 1). `number` is the
    ordinal of the next experiment; `random` is seeded with it, so that the same situation gives the
    same answer in every process. `is_new` accepts configurations that are possible and were not
    tried, `is_promising` of those the ones that would probably not crash.
    """

    search: Search
    own_trials: Sequence[Trial]
    past: Sequence[Trial]
    number: int
    random: Random
    is_new: Callable[[Place], bool]
    is_promising: Callable[[Place], bool]

    @property
    def standings(self) -> list[tuple[Place, int | None]]:
        """Return every place tried, by whichever task, with its standing; None: not known yet."""
        trials = (*self.past, *self.own_trials)
        return [(trial.place, trial.standing) for trial in trials if trial.place is not None]

    @property
    def turn(self) -> list[int | None]:
        """Return the engines, those that were tried least first, so that all have as good a
        chance; None: the only one.
        """
        space = self.search.space
        counts = Counter(
            space.engine_at(trial.place) for trial in self.own_trials if trial.place is not None
        )
        return sorted(space.parts, key=lambda engine: counts[engine])

    def propose(self, place: Place, reason: str, divisor: int = 1) -> Proposal:
        """Return the proposal of the configuration at a place."""
        point = self.search.space.point(place)
        return Proposal(ordinal=self.number, point=point, reason=reason, divisor=divisor)


class SearchStrategy(Protocol):
    """How a search goes on. What it takes of a task stands in `Strategy` (schemas/task)."""

    # Whether it leaves out what would probably crash, by what has crashed.
    avoids_crashes: bool

    def count_experiments(self, spec: OptimizationSpec, space: Space) -> int:
        """Return how many experiments it makes at most."""

    def next(self, situation: Situation) -> Answer:
        """Return what is tried next, or why nothing is; without memory of its own."""

    def describe(self, search: Search) -> str:
        """Return for people in which order it proceeds."""
