"""What the load generator measures of an engine whose true times are known, in virtual time.

The engine is the simulated one's batching; the truth comes from its rules alone
(`tests/support/known_servers/batch_truth.py`).
"""

from collections.abc import Sequence

import pytest

from schemas.task.benchmark import LevelMark, LevelResult
from shared.benchmarks.metrics import distribution
from shared.engines.simulated.batch import BatchSpeed
from tests.support.known_servers.batch_truth import TrueTimes, open_loop
from tests.support.known_servers.known_engine import (
    SIZE,
    SPEED,
    TRAVEL_SECONDS,
    VARIED,
    make_spec,
    measure,
    varied_closed_loop,
)


def p99(values: Sequence[float]) -> float:
    spread = distribution(values)
    assert spread is not None
    return spread.p99


def assert_true(level: LevelResult, truth: Sequence[TrueTimes]) -> None:
    assert level.stats.ttft is not None
    assert level.stats.e2e_latency is not None
    assert level.stats.ttft.p99 == pytest.approx(p99([each.ttft for each in truth]), rel=0.05)
    assert level.stats.e2e_latency.p99 == pytest.approx(p99([each.e2e for each in truth]), rel=0.05)


@pytest.mark.parametrize("clients", [2, pytest.param(8, marks=pytest.mark.long), 32])
def test_closed_loop_measures_the_truth(clients: int) -> None:
    truth = varied_closed_loop(clients)

    level = measure(
        make_spec(
            traffic_scenarios=(VARIED,), num_concurrency=(clients,), max_requests_per_level=1500
        )
    )

    assert_true(level, truth)
    assert level.marks == ()
    rate = clients / (sum(each.e2e for each in truth) / len(truth))
    assert level.requests_per_second == pytest.approx(rate, rel=0.02)


@pytest.mark.parametrize("rate", [2, pytest.param(25, marks=pytest.mark.long), 45])
@pytest.mark.parametrize("kind", ["poisson({})", "constant({})", "burst({},4)"])
def test_timed_arrivals_measure_the_truth(kind: str, rate: float) -> None:
    sent: list[float] = []
    arrivals = kind.format(rate)

    level = measure(make_spec(arrivals=(arrivals,)), sent)

    truth = open_loop(SPEED, SIZE, sent, TRAVEL_SECONDS)
    by_sending = sorted(truth, key=lambda each: each.sent)
    assert_true(level, by_sending[1:301])
    assert level.arrivals == arrivals
    assert level.lateness_p99_seconds == pytest.approx(0.0, abs=1e-9)
    assert level.requests_per_second == pytest.approx(rate, rel=0.15)
    assert LevelMark.NOT_STEADY not in level.marks


def test_overload_is_not_steady() -> None:
    most = measure(make_spec(num_concurrency=(16,))).requests_per_second

    level = measure(make_spec(arrivals=("poisson(150)",)))

    assert LevelMark.NOT_STEADY in level.marks
    assert level.requests_per_second == pytest.approx(most, rel=0.1)


def test_a_trace_is_sent_at_its_own_times() -> None:
    sent: list[float] = []
    spec = make_spec(arrivals=("trace",), arrival_trace_seconds=(7.0, 5.0, 5.5))

    level = measure(spec, sent)

    assert sent == pytest.approx([0.0, 0.5, 2.0])
    assert level.num_completed_requests == 3


def test_the_start_is_in_no_figure() -> None:
    """Sent all at once, every first token waits for all prompts: that was the p99 of a level."""
    steady = measure(make_spec(num_concurrency=(8,), max_requests_per_level=100))
    burst = measure(make_spec(num_concurrency=(8,), max_requests_per_level=100, warmup_requests=0))

    assert steady.stats.ttft is not None
    assert burst.stats.ttft is not None
    assert burst.stats.ttft.p99 > 1.5 * steady.stats.ttft.p99
    assert steady.marks == ()


def test_compile_time_is_in_no_figure() -> None:
    speed = BatchSpeed(step_seconds=0.01, compile_seconds=3.0, slots=16)

    level = measure(make_spec(num_concurrency=(8,), max_requests_per_level=400), speed=speed)

    assert level.stats.e2e_latency is not None
    assert level.stats.e2e_latency.p99 < 0.5


def test_concurrency_is_in_flight_to_the_end() -> None:
    level = measure(make_spec(num_concurrency=(8,), max_requests_per_level=200))

    assert level.steadiness is not None
    assert level.steadiness.little_error is not None
    assert level.steadiness.little_error < 0.02
