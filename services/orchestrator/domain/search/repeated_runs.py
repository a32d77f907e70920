"""Configurations with all their runs, and how far equal runs differ."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from schemas.orchestrator.experiments import FINISHED_EXPERIMENT_STATES
from schemas.task.objectives import Objective
from schemas.task.trust import RunInfo, RunRole
from services.orchestrator.domain.search.history import RunRecord
from services.orchestrator.domain.search.kept_engines import effective_runs, start_of
from shared.benchmarks.verdicts.ranking import Scored

# Of a configuration's own variance against that of all, as so many further runs.
_PRIOR: Final = 4
# One-sided 95 % of Student's t by degrees of freedom, 1 and up; the last of more.
_T: Final = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81, 1.80, 1.78, 1.77, 1.76)
_T_MANY: Final = 1.70
_ROUNDING: Final = 1e-9


class Configuration(Struct, frozen=True, kw_only=True):
    """Its runs but for replays: `measured` are those with a score, `counted` the least disturbed of
    them, `made` all that ended.

    `starts` are of the runs that count, see `start_of`. `better_share` and `worse_share` are how
    far the mean of what counts may be off, see `ScoreError`; None: by any amount.
    """

    first: RunRecord
    measured: tuple[RunRecord, ...]
    counted: tuple[Scored, ...]
    made: int
    is_reliable: bool
    starts: tuple[int, ...] = ()
    better_share: float | None = 0.0
    worse_share: float | None = 0.0
    doubts: tuple[str, ...] = ()

    @property
    def ordinal(self) -> int:
        return self.first.ordinal

    @property
    def clean(self) -> tuple[Scored, ...]:
        """Return the runs that count if none of them is off by any amount."""
        is_bounded = self.better_share is not None and self.worse_share is not None
        return self.counted if is_bounded else ()

    @property
    def scores(self) -> list[float]:
        return [run.score for run in self.counted if run.score is not None]

    @property
    def mean(self) -> float:
        return math.fsum(self.scores) / len(self.scores)

    @property
    def effective_runs(self) -> float:
        """Return how many runs on starts of their own tell as much as those that count."""
        return effective_runs(self.starts) if self.starts else float(len(self.scores))

    @property
    def freedom(self) -> float:
        """Return by what the squares are divided for the variance of runs on fresh starts: one
        less than the runs, and less where some share a start.
        """
        return len(self.scores) * (1 - 1 / self.effective_runs) if self.scores else 0.0

    @property
    def measured_mean(self) -> float:
        """Return the mean of all that was measured, whatever disturbed it."""
        scores = [run.scored.score or 0.0 for run in self.measured if run.scored is not None]
        return math.fsum(scores) / len(scores)

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

    def error(self, first: Configuration, other: Configuration) -> float:
        """Return by how much two means of equal configurations may differ, as a share."""
        return self.t * math.sqrt(sum(self._variance(c) / c.effective_runs for c in (first, other)))

    def margin(self, first: Configuration, other: Configuration) -> float:
        """Return by how much chance and measuring together may part them, as a share."""
        return self.error(first, other) + slack(first, other)

    def floor(self) -> float:
        return self.t * math.sqrt(2 * self.variance)

    def _variance(self, configuration: Configuration) -> float:
        prior = _PRIOR * self.variance
        return (configuration.squares + prior) / (configuration.freedom + _PRIOR)


def configurations_of(past: Sequence[RunRecord]) -> list[Configuration]:
    runs: dict[int, list[RunRecord]] = {}
    for run in past:
        is_measured = run.run.role in {RunRole.SEARCH, RunRole.REPEAT}
        if is_measured and run.state in FINISHED_EXPERIMENT_STATES:
            runs.setdefault(run.run.repeats or run.ordinal, []).append(run)
    return [_configuration(own_runs) for own_runs in runs.values()]


def _configuration(runs: Sequence[RunRecord]) -> Configuration:
    measured = [run for run in runs if run.scored is not None and run.scored.score is not None]
    undisturbed = [run for run in measured if not run.run.contaminated]
    counted = [run for run in undisturbed if _is_bounded(run.run)] or undisturbed or measured
    return Configuration(
        first=runs[0],
        measured=tuple(measured),
        counted=tuple(run.scored for run in counted if run.scored is not None),
        made=len(runs),
        starts=tuple(start_of(run) for run in counted),
        is_reliable=all(run.scored is not None for run in runs),
        better_share=_mean([_shares(run.run)[0] for run in counted]),
        worse_share=_mean([_shares(run.run)[1] for run in counted]),
        doubts=tuple(dict.fromkeys(doubt for run in counted for doubt in run.run.doubts)),
    )


def _shares(run: RunInfo) -> tuple[float | None, float | None]:
    """Return by what shares of it a run's score may be better and worse; None: by any amount."""
    if run.contaminated:
        return None, None
    return (run.error.better_share, run.error.worse_share) if run.error is not None else (0.0, 0.0)


def _is_bounded(run: RunInfo) -> bool:
    return None not in _shares(run)


def _mean(shares: Sequence[float | None]) -> float | None:
    shares_known = [share for share in shares if share is not None]
    if len(shares_known) < len(shares):
        return None
    return math.fsum(shares_known) / len(shares_known) if shares_known else 0.0


def noise_of(compared: Iterable[Configuration]) -> Noise | None:
    """Return the noise of the measured configurations; None where none was measured twice."""
    measured = list(compared)
    freedom = math.fsum(configuration.freedom for configuration in measured)
    if freedom < 1 - _ROUNDING:
        return None
    squares = math.fsum(configuration.squares for configuration in measured)
    return Noise(variance=squares / freedom, freedom=math.floor(freedom + _ROUNDING))


def behind(objective: Objective, leader: Configuration, other: Configuration) -> float:
    """Return the gap as a share of the leader's mean; less than 0: `other` is better."""
    return _gap(objective, leader.mean, other.mean)


def _gap(objective: Objective, leader: float, other: float) -> float:
    if not leader:
        return 0.0
    gap = other / leader - 1
    return -gap if objective.is_maximized else gap


def slack(leader: Configuration, other: Configuration) -> float:
    """Return by how much measuring may have parted the two, as a share of the leader's mean:
    infinite where nothing bounds it.
    """
    if other.better_share is None or leader.worse_share is None:
        return math.inf
    ratio = abs(other.mean / leader.mean) if leader.mean else 1.0
    return other.better_share * ratio + leader.worse_share


def is_better(
    objective: Objective, first: Configuration, other: Configuration, noise: Noise
) -> bool:
    """Return whether the one is better by more than chance and measuring can explain.

    What was set aside has to agree on which is the better one: marks of single runs may leave the
    order of two configurations undecided, and never turn it round.
    """
    return (
        behind(objective, first, other) > noise.margin(first, other)
        and _gap(objective, first.measured_mean, other.measured_mean) >= 0
    )


def find_filtered(
    configurations: Iterable[Configuration], compared: Sequence[Configuration]
) -> list[Configuration]:
    """Return those that are not compared only for what measuring may have done to them: levels that
    were set aside, or constraints that the engine alone may meet.
    """
    ordinals = {configuration.ordinal for configuration in compared}
    return [
        configuration
        for configuration in configurations
        if configuration.ordinal not in ordinals
        and configuration.counted
        and configuration.is_reliable
        and all(
            (not run.excess or _may_meet(configuration, run))
            and all(level.set_aside is not None for level in run.failed_levels)
            for run in configuration.counted
        )
    ]


def _may_meet(configuration: Configuration, counted: Scored) -> bool:
    return any(
        run.run.contaminated or (run.run.error is not None and run.run.error.may_meet)
        for run in configuration.measured
        if run.scored is counted
    )
