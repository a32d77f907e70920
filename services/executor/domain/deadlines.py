"""How long each phase of an attempt may take."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from schemas.executor.attempts import AttemptPhase, FailureKind
from schemas.task.benchmark import BenchmarkSpec
from services.executor.domain.verdict import Verdict, failure, failure_verdict
from shared.benchmarks.quality.agreement import PROBE_SECONDS

MIN_LEVEL_SECONDS: Final = 60.0  # genai-bench counts whole minutes


class PhaseLimits(Struct, frozen=True, kw_only=True):
    """Seconds. `level_slack` is what a level may take beyond its own limit, and a drain as such."""

    pulling: float
    starting: float
    loading: float
    level_slack: float


def phase_limits(limits: PhaseLimits, benchmark: BenchmarkSpec) -> Mapping[AttemptPhase, float]:
    """Return the limit of each phase in seconds from its beginning.

    Warming up and measuring are entered anew with each level; answers are probed before the first.
    A teardown takes as long as it needs: devices are given back when nothing runs on them, not when
    it is late.
    """
    level = max(benchmark.max_time_per_level_seconds, MIN_LEVEL_SECONDS) + limits.level_slack
    return {
        AttemptPhase.PULLING: limits.pulling,
        AttemptPhase.STARTING: limits.starting,
        # The runtime's own deadline comes first, and can say more.
        AttemptPhase.LOADING: limits.loading + limits.starting,
        AttemptPhase.WARMING_UP: level + (PROBE_SECONDS if benchmark.quality else 0.0),
        AttemptPhase.MEASURING: level,
        AttemptPhase.DRAINING: limits.level_slack,
    }


def rank_limits(limits: PhaseLimits) -> Mapping[AttemptPhase, float]:
    """The same for a rank that another executor coordinates.

    Once its engine is started, the coordinator's deadlines count for all of them.
    """
    return {AttemptPhase.PULLING: limits.pulling, AttemptPhase.STARTING: limits.starting}


def phase_timed_out(phase: AttemptPhase, limit_seconds: float) -> Verdict:
    name = phase.value.replace("_", " ")
    message = f"expected {name} to take at most {limit_seconds:g} s"
    return failure_verdict(failure(FailureKind.TIMEOUT, message, phase=phase))
