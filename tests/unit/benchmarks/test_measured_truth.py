"""What the load generator measures of an engine whose true times are known, in virtual time.

The engine is the simulated one's batching; the truth comes from its rules alone
(`tests/support/batch_truth.py`).
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from schemas.benchmark import (
    BenchmarkSpec,
    CacheReset,
    LevelMark,
    LevelResult,
    PrefixCacheUse,
)
from services.executor.engines.servers.simulated_batch import BatchSpeed
from services.executor.engines.servers.simulated_batch_server import BatchRunner
from shared.benchmarks.arrivals import loads
from shared.benchmarks.builtin import LoadGenerator
from shared.benchmarks.chat_server import LoadLimits
from shared.benchmarks.metrics import RequestSample, distribution
from shared.benchmarks.prefix_cache import Start
from shared.benchmarks.traffic import RequestSize
from tests.support.batch_truth import TrueTimes, closed_loop, open_loop
from tests.support.virtual_time import run_virtually

TRAVEL_SECONDS = 0.0007
SIZE = (200, 12)
SPEED = BatchSpeed(
    step_seconds=0.01,
    prefill_token_seconds=0.00005,
    kv_token_seconds=0.0000002,
    slots=16,
    batch_tokens=512,
)


@dataclass(slots=True)
class KnownEngine:
    """In this process, a travel away."""

    speed: BatchSpeed
    limits: LoadLimits = field(default_factory=LoadLimits)
    sent_at: list[float] = field(default_factory=list)
    _runner: BatchRunner = field(init=False)

    def __post_init__(self) -> None:
        self._runner = BatchRunner(self.speed)

    async def request(
        self, size: RequestSize, rng: random.Random, deadline_seconds: float
    ) -> RequestSample:
        assert deadline_seconds > 0
        loop = asyncio.get_running_loop()
        sent, first = loop.time(), None
        self.sent_at.append(sent)
        prompt = [str(rng.getrandbits(64))] * size.num_input_tokens
        await asyncio.sleep(TRAVEL_SECONDS)
        async for _ in self._runner.generate(prompt, size.num_output_tokens):
            if first is None:
                first = loop.time() + TRAVEL_SECONDS
        await asyncio.sleep(TRAVEL_SECONDS)
        assert first is not None
        return RequestSample(
            ttft=first - sent,
            e2e_latency=loop.time() - sent,
            num_input_tokens=size.num_input_tokens,
            num_output_tokens=size.num_output_tokens,
        )


class NoCache:
    async def begin(self) -> Start:
        return Start(CacheReset.UNSUPPORTED)

    async def use(self, start: Start, requests: int) -> PrefixCacheUse:
        assert requests
        return PrefixCacheUse(reset=start.reset)


def make_spec(**overrides: Any) -> BenchmarkSpec:  # any field
    fields: dict[str, Any] = {
        "traffic_scenarios": (f"D({SIZE[0]},{SIZE[1]})",),
        "max_requests_per_level": 300,
        "max_time_per_level_seconds": 100_000.0,
    }
    return BenchmarkSpec(**fields | overrides)


def measure(
    spec: BenchmarkSpec,
    speed: BatchSpeed = SPEED,
    seen: Callable[[KnownEngine], None] | None = None,
) -> LevelResult:
    async def run() -> LevelResult:
        engine = KnownEngine(speed)
        generator = LoadGenerator(server=engine, cache=NoCache(), seed=7)
        result = await generator.run_level(1, spec.traffic_scenarios[0], loads(spec)[0], spec)
        if seen is not None:
            seen(engine)
        return result

    return run_virtually(run())


def p99(values: Sequence[float]) -> float:
    spread = distribution(values)
    assert spread is not None
    return spread.p99


def assert_true(level: LevelResult, truth: Sequence[TrueTimes]) -> None:
    assert level.stats.ttft is not None
    assert level.stats.e2e_latency is not None
    assert level.stats.ttft.p99 == pytest.approx(p99([each.ttft for each in truth]), rel=0.05)
    assert level.stats.e2e_latency.p99 == pytest.approx(p99([each.e2e for each in truth]), rel=0.05)


@pytest.mark.parametrize("clients", [1, 4, 16, 32])
def test_a_closed_loop_measures_the_truth_from_idle_to_saturation(clients: int) -> None:
    alone = SPEED.idle_ttft_seconds(SIZE[0]) + SIZE[1] * SPEED.step_seconds
    truth = closed_loop(
        SPEED,
        SIZE,
        clients=clients,
        requests=1200,
        travel_seconds=TRAVEL_SECONDS,
        ramp_seconds=alone,
    )[300:]

    # Equal requests without chance fall into their final order only after some turns.
    level = measure(make_spec(num_concurrency=(clients,), warmup_requests=6 * clients))

    assert_true(level, truth)
    assert level.num_completed_requests + level.steadiness.discarded_requests == 300  # type: ignore[union-attr]  # made by run_level
    assert level.marks == ()
    rate = clients / (sum(each.e2e for each in truth) / len(truth))
    assert level.requests_per_second == pytest.approx(rate, rel=0.02)


@pytest.mark.parametrize("rate", [2, 25, 45])
@pytest.mark.parametrize("kind", ["poisson({})", "constant({})", "burst({},4)"])
def test_timed_arrivals_measure_the_truth_from_idle_to_saturation(kind: str, rate: float) -> None:
    sent: list[float] = []
    arrivals = kind.format(rate)

    level = measure(
        make_spec(arrivals=(arrivals,)), seen=lambda engine: sent.extend(engine.sent_at)
    )

    truth = open_loop(SPEED, SIZE, sent, TRAVEL_SECONDS)
    by_sending = sorted(truth, key=lambda each: each.sent)
    assert_true(level, by_sending[1:301])
    assert level.arrivals == arrivals
    assert level.lateness_p99_seconds == pytest.approx(0.0, abs=1e-9)
    assert level.requests_per_second == pytest.approx(rate, rel=0.15)
    assert LevelMark.NOT_STEADY not in level.marks


def test_more_arrivals_than_can_be_served_are_not_steady_and_the_rate_is_the_engines() -> None:
    most = measure(make_spec(num_concurrency=(16,))).requests_per_second

    level = measure(make_spec(arrivals=("poisson(150)",)))

    assert LevelMark.NOT_STEADY in level.marks
    assert level.requests_per_second == pytest.approx(most, rel=0.1)


def test_a_trace_is_sent_at_its_own_times() -> None:
    sent: list[float] = []
    spec = make_spec(arrivals=("trace",), arrival_trace_seconds=(7.0, 5.0, 5.5))

    level = measure(spec, seen=lambda engine: sent.extend(engine.sent_at))

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


def test_what_is_compiled_at_the_start_is_in_no_figure() -> None:
    speed = BatchSpeed(step_seconds=0.01, compile_seconds=3.0, slots=16)

    level = measure(make_spec(num_concurrency=(8,), max_requests_per_level=400), speed)

    assert level.stats.e2e_latency is not None
    assert level.stats.e2e_latency.p99 < 0.5


def test_the_wanted_number_is_in_flight_until_the_last_is_answered() -> None:
    level = measure(make_spec(num_concurrency=(8,), max_requests_per_level=200))

    assert level.steadiness is not None
    assert level.steadiness.little_error is not None
    assert level.steadiness.little_error < 0.02
