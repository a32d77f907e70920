"""Whether a level was served by what an earlier one had left in the engine's prefix cache."""

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from schemas.task.benchmark import (
    BenchmarkResult,
    BenchmarkSpec,
    LevelMark,
    LevelResult,
)
from schemas.task.prefix_cache import CacheReset
from shared.benchmarks.builtin import prefix_cache
from shared.benchmarks.builtin.generator import run_benchmark
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from tests.support.http_server import serving

SPEC = BenchmarkSpec(
    traffic_scenarios=("D(200,2)",), num_concurrency=(2,), max_requests_per_level=6
)


def engine(**behaviour: Any) -> AbstractAsyncContextManager[str]:  # any field
    fast: dict[str, Any] = {"model": "m", "step_seconds": 0.001, "prefix_cache": True}
    return serving(SimulatedEngine(Behaviour(**fast | behaviour)).app())


async def measure(base_url: str, spec: BenchmarkSpec = SPEC, **options: Any) -> BenchmarkResult:
    return await run_benchmark(spec, base_url=base_url, model_name="m", **options)


def share_of(level: LevelResult) -> float:
    assert level.prefix_cache is not None
    assert level.prefix_cache.hit_share is not None
    return level.prefix_cache.hit_share


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_cache, "BUSY_PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
@pytest.mark.parametrize("cache_reset", ["refused", "ignored", "absent"])
async def test_a_level_that_the_cache_served_is_set_aside(dialect: str, cache_reset: str) -> None:
    async with engine(dialect=dialect, cache_reset=cache_reset) as base_url:
        first = await measure(base_url, seed=1)
        again = await measure(base_url, seed=1)

    assert first.levels[0].set_aside is None
    level = again.levels[0]
    assert level.prefix_cache is not None
    assert level.prefix_cache.reset is CacheReset.FAILED
    assert share_of(level) > 0.5
    assert level.set_aside is not None
    assert {LevelMark.CACHE_HITS, LevelMark.CACHE_NOT_RESET} <= set(level.marks)
    [failed] = again.metrics.failed_levels
    assert failed.set_aside == level.set_aside
    assert again.metrics.max_total_throughput is None


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
async def test_requests_repeat_only_to_an_empty_cache(
    dialect: str,
) -> None:
    async with engine(dialect=dialect) as base_url:
        emptied = [(await measure(base_url)).levels[0] for _ in range(2)]
    async with engine(dialect=dialect, cache_reset="ignored") as base_url:
        full = [(await measure(base_url)).levels[0] for _ in range(2)]

    assert emptied[0].seed == emptied[1].seed
    assert full[0].seed != full[1].seed
    for level in (*emptied, *full):
        assert share_of(level) == 0
        assert level.set_aside is None


async def test_equal_levels_are_each_measured_cold() -> None:
    spec = BenchmarkSpec(
        traffic_scenarios=("D(200,2)",), num_concurrency=(2, 2), max_requests_per_level=6
    )
    async with engine() as base_url:
        levels = (await measure(base_url, spec)).levels

    assert levels[0].seed == levels[1].seed
    assert [share_of(level) for level in levels] == [0, 0]


async def test_declared_shared_prefix_is_reported() -> None:
    spec = BenchmarkSpec(
        traffic_scenarios=("D(320,2)",), max_requests_per_level=40, prefix_share=0.5
    )
    async with engine() as base_url:
        level = (await measure(base_url, spec)).levels[0]

    assert level.set_aside is None
    # The first request found nothing, and those beyond the last measured one are counted as well.
    assert share_of(level) == pytest.approx(0.5, abs=0.05)


async def test_engine_without_counters_gets_new_prompts() -> None:
    async with engine(step_seconds=None) as base_url:
        levels = [(await measure(base_url)).levels[0] for _ in range(2)]

    assert levels[0].seed != levels[1].seed
    for level in levels:
        assert level.prefix_cache is not None
        assert level.prefix_cache.reset is CacheReset.UNSUPPORTED
        assert level.prefix_cache.hit_share is None
        assert level.set_aside is None
