"""Configurations with all their runs, and how far equal runs differ."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from schemas.orchestrator.experiments import FINISHED_EXPERIMENT_STATES
from schemas.task.task_file import Objective
from schemas.task.trust import RunRole
from services.orchestrator.domain.search.history import Past
from shared.benchmarks.verdicts.ranking import Scored

# Of a configuration's own variance against that of all, as so many further runs.
_PRIOR: Final = 4
# One-sided 95 % of Student's t by degrees of freedom, 1 and up; the last of more.
_T: Final = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81, 1.80, 1.78, 1.77, 1.76)
_T_MANY: Final = 1.70


class Configuration(Struct, frozen=True, kw_only=True):
    """Its runs but for replays; `clean` are those that count, `made` all that ended."""

    first: Past
    clean: tuple[Scored, ...]
    made: int
    is_reliable: bool

    @property
    def ordinal(self) -> int:
        return self.first.ordinal

    @property
    def scores(self) -> list[float]:
        return [each.score for each in self.clean if each.score is not None]

    @property
    def mean(self) -> float:
        return math.fsum(self.scores) / len(self.scores)

    @property
    def squares(self) -> float:
        """Sum of squared deviations, as shares of the mean."""
        mean = self.mean
        return math.fsum((score / mean - 1) ** 2 for score in self.scores) if mean else 0.0


class Noise(Struct, frozen=True, kw_only=True):
    """How far runs of one configuration differ, of all that were repeated."""

    variance: float
    freedom: int

    @property
    def t(self) -> float:
        return _T[self.freedom - 1] if self.freedom <= len(_T) else _T_MANY

    def error(self, one: Configuration, other: Configuration) -> float:
        """By how much two means of equal configurations may differ, as a share."""
        return self.t * math.sqrt(sum(self._variance(c) / len(c.scores) for c in (one, other)))

    def floor(self) -> float:
        return self.t * math.sqrt(2 * self.variance)

    def _variance(self, one: Configuration) -> float:
        prior = _PRIOR * self.variance
        return (one.squares + prior) / (len(one.scores) - 1 + _PRIOR)


def configurations_of(past: Sequence[Past]) -> list[Configuration]:
    runs: dict[int, list[Past]] = {}
    for each in past:
        is_measured = each.run.role in {RunRole.SEARCH, RunRole.REPEAT}
        if is_measured and each.state in FINISHED_EXPERIMENT_STATES:
            runs.setdefault(each.run.repeats or each.ordinal, []).append(each)
    return [
        Configuration(
            first=own[0],
            clean=tuple(
                each.scored
                for each in own
                if each.scored is not None
                and each.scored.score is not None
                and not each.run.contaminated
            ),
            made=len(own),
            is_reliable=all(each.scored is not None for each in own),
        )
        for own in runs.values()
    ]


def noise_of(compared: Iterable[Configuration]) -> Noise | None:
    """Of those that were measured; None where none was measured twice."""
    measured = list(compared)
    freedom = sum(len(each.scores) - 1 for each in measured)
    if not freedom:
        return None
    squares = math.fsum(each.squares for each in measured)
    return Noise(variance=squares / freedom, freedom=freedom)


def behind(objective: Objective, leader: Configuration, other: Configuration) -> float:
    """As a share of the leader's mean; less than 0: it is before it."""
    if not leader.mean:
        return 0.0
    gap = other.mean / leader.mean - 1
    return -gap if objective.is_maximized else gap
