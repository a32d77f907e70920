"""How far a run's score may be off what its engine alone would score, by what measuring it added.

The score is computed again from the levels as the fastest and the slowest engine would have given
them that the figures allow. Nothing here depends on how good the configuration is.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from schemas.task.benchmark import (
    MAX_ERROR_RATE,
    BenchmarkMetrics,
    BenchmarkResult,
    LevelMark,
    LevelResult,
)
from schemas.task.objectives import Objective
from schemas.task.slo import SloSpec, SloVerdict
from schemas.task.task_file import TaskFile
from schemas.task.trust import ScoreError
from shared.benchmarks.experiment_metrics import aggregate
from shared.benchmarks.levels.engine_share import fastest_level, is_only_short, slowest_level
from shared.benchmarks.levels.level_choice import select_compared_levels
from shared.benchmarks.levels.level_text import load_text
from shared.benchmarks.verdicts.constraints import (
    check_constraints,
    parse_constraints,
    worst_excess,
)
from shared.benchmarks.verdicts.ranking import score
from shared.benchmarks.verdicts.slo import penalize, slo_verdict

NAMED_FROM_SHARE: Final = 0.01  # of the score, from which on the load generator's part is named
_BY_CLIENT: Final = frozenset({LevelMark.CLIENT_LIMITED, LevelMark.SENT_LATE})


def score_error(file: TaskFile, benchmark: BenchmarkResult) -> ScoreError | None:
    """Return how far the score of a benchmark may be off, the widest of the task's objectives; None
    where nothing is known to be off.
    """
    levels = [replace(level, requests=None) for level in select_compared_levels(benchmark)]
    rate = benchmark.metrics.max_error_rate
    max_error_rate = MAX_ERROR_RATE if rate is None else rate
    better: float | None = 0.0
    worse: float | None = 0.0
    for objective in file.optimization.goals:
        if objective.traits.counts_requests:
            marks = {mark for level in benchmark.levels for mark in level.marks}
            if marks & _BY_CLIENT:
                better = worse = None
            continue
        better_share, worse_share = _shares(objective, file.slo, levels, max_error_rate)
        better = None if better is None else max(better, better_share)
        worse = None if worse is None else max(worse, worse_share)
    if any(LevelMark.CACHE_HITS in level.marks for level in levels):
        worse = None
    if better == 0 and worse == 0:
        return None
    return ScoreError(
        better_share=better,
        worse_share=worse,
        because=tuple(_causes(levels, better)),
        may_meet=_may_meet(file, levels),
    )


def add_errors(error: ScoreError | None, other: ScoreError | None) -> ScoreError | None:
    """Return what both together allow for; None: neither is known."""
    if error is None or other is None:
        return error or other
    return ScoreError(
        better_share=_sum(error.better_share, other.better_share),
        worse_share=_sum(error.worse_share, other.worse_share),
        because=(*error.because, *other.because),
        may_meet=error.may_meet or other.may_meet,
    )


def _sum(share: float | None, other: float | None) -> float | None:
    return None if share is None or other is None else share + other


def without_client_failure(
    slo: SloSpec, levels: Sequence[LevelResult], verdict: SloVerdict
) -> SloVerdict:
    """Return the verdict without a hard failure that the load generator alone may have made."""
    if not verdict.failed_because:
        return verdict
    fastest = slo_verdict(slo, [fastest_level(level) for level in levels])
    return replace(verdict, failed_because=verdict.failed_because if fastest.failed_because else "")


def _shares(
    objective: Objective, slo: SloSpec | None, levels: Sequence[LevelResult], max_error_rate: float
) -> tuple[float, float]:
    """Return by what share of it the score may be better and worse."""

    def score_with(change: Callable[[LevelResult], LevelResult]) -> float:
        changed = [change(level) for level in levels]
        value = _score(objective, aggregate(changed, max_error_rate))
        if slo is None or not value:
            return value
        return penalize(objective, value, slo_verdict(slo, changed).penalty)

    measured = score_with(lambda level: level)
    if not measured:
        return 0.0, 0.0
    sign = 1 if objective.is_maximized else -1
    fastest, slowest = score_with(fastest_level), score_with(slowest_level)
    return (
        max(0.0, sign * (fastest / measured - 1)),
        max(0.0, -sign * (slowest / measured - 1)),
    )


def _score(objective: Objective, metrics: BenchmarkMetrics) -> float:
    """Return the objective's measure as far as the load generator tells it; 0 is unknown."""
    if not objective.traits.divides_throughput:
        return score(objective, metrics) or 0.0
    throughput = metrics.mean_output_throughput or 0.0
    return throughput if objective.is_maximized or not throughput else 1 / throughput


def _may_meet(file: TaskFile, levels: Sequence[LevelResult]) -> bool:
    """Return whether the fastest engine that the figures allow meets the task's constraints."""
    constraints = parse_constraints(file.optimization.constraints)
    return not worst_excess(
        check_constraints(constraints, [fastest_level(level) for level in levels])
    )


def _causes(levels: Sequence[LevelResult], better_share: float | None) -> Iterator[str]:
    """Yield what made the score uncertain, for people; the load generator only where it matters."""
    if better_share is None:
        yield "the load generator was the limit"
    elif better_share >= NAMED_FROM_SHARE:
        yield "the load generator's own time"
    for level in levels:
        if LevelMark.SENT_LATE in level.marks:
            yield f"{load_text(level)}: requests were sent late"
        if LevelMark.LITTLES_LAW in level.marks and not is_only_short(level):
            yield f"{load_text(level)}: the figures contradict each other (Little's law)"
        if LevelMark.CACHE_HITS in level.marks:
            yield f"{load_text(level)}: prompts were found in the prefix cache"
