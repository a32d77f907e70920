"""How fast the engine alone may have been."""

import msgspec
import pytest

from schemas.task.benchmark import LevelMark, LevelResult, LevelStats, Steadiness
from shared.benchmarks.levels.engine_share import fastest_level, is_only_short, slowest_level
from tests.support.worlds.benchmark_levels import make_level


def means_of(level: LevelResult) -> list[float]:
    spreads = (level.stats.ttft, level.stats.tpot, level.stats.e2e_latency)
    return [spread.mean for spread in spreads if spread is not None]


def test_client_in_time_changes_no_figures() -> None:
    level = make_level(client_lag_mean_seconds=0.0, client_lag_p99_seconds=0.0)

    assert fastest_level(level) == slowest_level(level) == level


def test_twice_the_mean_lag_may_be_in_each_mean() -> None:
    late = make_level(client_lag_mean_seconds=0.05, client_lag_p99_seconds=0.09)

    fastest = fastest_level(late)

    assert means_of(fastest) == pytest.approx([0.1, 0.07, 0.9])
    assert fastest.stats.ttft is not None
    assert fastest.stats.ttft.p99 == pytest.approx(0.02)
    assert means_of(slowest_level(late)) == means_of(late)


def test_without_a_mean_the_p99_of_the_lag_bounds_it() -> None:
    fastest = fastest_level(make_level(client_lag_p99_seconds=0.1))

    assert means_of(fastest) == pytest.approx([1e-9, 0.06, 0.8])


@pytest.mark.parametrize(
    ("arrivals", "per_second"),
    [pytest.param(None, 2.5, id="closed loop"), pytest.param("constant(2)", 2.0, id="open loop")],
)
def test_faster_engine_raises_closed_loop_rates(arrivals: str | None, per_second: float) -> None:
    late = make_level(client_lag_mean_seconds=0.1, arrivals=arrivals)

    assert fastest_level(late).requests_per_second == pytest.approx(per_second)


def test_late_requests_bound_times_on_both_sides() -> None:
    late = make_level(arrivals="poisson(2)", lateness_p99_seconds=0.05)

    assert means_of(fastest_level(late))[2] == pytest.approx(0.95)
    assert means_of(slowest_level(late))[2] == pytest.approx(1.05)


@pytest.mark.parametrize(
    ("seconds", "little_error", "is_short"),
    [
        pytest.param(2.0, 0.35, True, id="8 requests, of which the end cuts 4"),
        pytest.param(6.0, 0.15, True, id="24 requests"),
        pytest.param(100.0, 0.15, False, id="400 requests, of which more are lost than cut"),
        pytest.param(6.0, 0.6, False, id="24 requests that do not fit at all"),
    ],
)
def test_contradicting_figures_bound_times(
    seconds: float, little_error: float, is_short: bool
) -> None:
    level = make_level(
        num_concurrency=4,
        run_duration=seconds,
        steadiness=Steadiness(little_error=little_error),
        marks=(LevelMark.LITTLES_LAW,),
    )

    share = 0.0 if is_short else little_error
    assert is_only_short(level) is is_short
    assert means_of(fastest_level(level))[2] == pytest.approx(1 - share)
    assert means_of(slowest_level(level))[2] == pytest.approx(1 + share)


def test_level_without_completions_stays_empty() -> None:
    empty = make_level(stats=LevelStats(), client_lag_mean_seconds=0.1)

    assert fastest_level(empty).stats == LevelStats()
    assert fastest_level(msgspec.structs.replace(empty, arrivals="constant(2)")) is not empty
