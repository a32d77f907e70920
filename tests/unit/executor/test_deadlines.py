"""How long each phase of an attempt may take."""

import pytest

from schemas.executor.attempts import AttemptPhase, FailureKind
from schemas.task.benchmark import BenchmarkSpec
from services.executor.domain.deadlines import (
    MIN_LEVEL_SECONDS,
    PhaseLimits,
    phase_limits,
    phase_timed_out,
    rank_limits,
)

LIMITS = PhaseLimits(pulling=1000.0, starting=20.0, loading=300.0, level_slack=40.0)


def level_limit(max_time_per_level_seconds: float) -> float:
    benchmark = BenchmarkSpec(max_time_per_level_seconds=max_time_per_level_seconds)
    limits = phase_limits(LIMITS, benchmark)

    assert limits[AttemptPhase.WARMING_UP] == limits[AttemptPhase.MEASURING]
    return limits[AttemptPhase.MEASURING]


@pytest.mark.parametrize(
    ("level_seconds", "want"),
    [
        pytest.param(1.0, MIN_LEVEL_SECONDS + 40.0, id="a tool counts whole minutes"),
        pytest.param(60.0, 100.0, id="one minute"),
        pytest.param(600.0, 640.0, id="the level's own limit where that is longer"),
    ],
)
def test_level_limit_is_never_below_minimum(level_seconds: float, want: float) -> None:
    assert level_limit(level_seconds) == want


def test_every_phase_but_the_teardown_has_a_limit() -> None:
    limits = phase_limits(LIMITS, BenchmarkSpec())

    assert set(AttemptPhase) - set(limits) == {AttemptPhase.TEARING_DOWN}
    assert limits[AttemptPhase.PULLING] == 1000.0
    assert limits[AttemptPhase.STARTING] == 20.0
    assert limits[AttemptPhase.LOADING] == 320.0
    assert limits[AttemptPhase.DRAINING] == 40.0


def test_rank_has_limits_until_engine_starts() -> None:
    assert rank_limits(LIMITS) == {AttemptPhase.PULLING: 1000.0, AttemptPhase.STARTING: 20.0}


def test_late_phase_is_named_with_its_limit() -> None:
    failure = phase_timed_out(AttemptPhase.WARMING_UP, 100.0).failure

    assert failure is not None
    assert (failure.kind, failure.phase) == (FailureKind.TIMEOUT, AttemptPhase.WARMING_UP)
    assert failure.message == "expected warming up to take at most 100 s"
