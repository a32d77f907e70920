"""Levels made by several real processes, against the simulated engine over HTTP."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest

from schemas.task.benchmark import BenchmarkSpec, LevelResult
from shared.benchmarks.arrivals import loads
from shared.benchmarks.builtin.generator import LoadGenerator
from shared.benchmarks.builtin.load_processes import Crew
from shared.benchmarks.builtin.prefix_cache import ServerPrefixCache
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.tools.adapter import BenchmarkFailed
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from shared.testing import eventually
from tests.support.http_server import serving

SCENARIO = "D(16,8)"


@asynccontextmanager
async def generator(**behaviour: Any) -> AsyncIterator[LoadGenerator]:
    """Two processes, of which none alone can take anything."""
    engine = Behaviour(model="m", **{"ttft_seconds": 0.02, "slots": 64, **behaviour})
    async with (
        serving(SimulatedEngine(engine).app()) as base_url,
        ChatServer(base_url=base_url, model_name="m") as server,
    ):
        yield LoadGenerator(
            server=server,
            cache=ServerPrefixCache(server, random.Random(0)),
            seed=1,
            crew=Crew(server, 2, 1.0, {SCENARIO: 1e6}),
        )


def workers() -> list[psutil.Process]:
    return [
        each
        for each in psutil.Process().children(recursive=True)
        if "shared.benchmarks.builtin.load_worker" in each.cmdline()
    ]


async def measured(made: LoadGenerator, spec: BenchmarkSpec) -> LevelResult:
    return await made.run_level(1, spec.traffic_scenarios[0], loads(spec)[0], spec)


async def test_two_processes_share_a_closed_loop() -> None:
    spec = BenchmarkSpec(
        traffic_scenarios=(SCENARIO,), num_concurrency=(6,), max_requests_per_level=60
    )
    async with generator() as made:
        level = await measured(made, spec)

    assert level.client_processes == 2
    assert level.num_error_requests == 0
    assert 0 < level.num_completed_requests <= 60
    assert level.num_concurrency == 6
    assert level.stats.ttft is not None
    assert level.stats.ttft.min >= 0.02
    assert level.client_lag_p99_seconds is not None
    assert workers() == []


@pytest.mark.long
async def test_two_processes_share_timed_arrivals() -> None:
    spec = BenchmarkSpec(
        traffic_scenarios=(SCENARIO,), arrivals=("constant(40)",), max_requests_per_level=40
    )
    async with generator() as made:
        level = await measured(made, spec)

    assert level.client_processes == 2
    assert level.arrivals == "constant(40)"
    assert level.num_error_requests == 0
    assert level.num_completed_requests > 20


@pytest.mark.parametrize("end", ["killed", "cancelled"])
async def test_ended_or_cancelled_load_leaves_nothing(end: str) -> None:
    spec = BenchmarkSpec(
        traffic_scenarios=(SCENARIO,), arrivals=("constant(20)",), max_requests_per_level=100_000
    )
    async with generator() as made:
        running = asyncio.create_task(measured(made, spec))
        await eventually(lambda: len(workers()) == 2, within_seconds=60, what="two workers")
        if end == "killed":
            workers()[0].kill()
            with pytest.raises(BenchmarkFailed, match="ended with exit code -9"):
                await running
        else:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    assert workers() == []
