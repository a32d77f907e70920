"""A load that spreads over LoRA adapters: each conversation is with one of them."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool
from shared.benchmarks.builtin.generator import run_benchmark
from shared.benchmarks.tools.adapter import ModelNotServed
from shared.benchmarks.tools.spec_check import check_genai_bench, check_generated
from shared.benchmarks.traffic import UnsupportedTraffic
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from tests.support.http_server import serving

SPEC = BenchmarkSpec(
    traffic_scenarios=("D(20,4)",),
    num_concurrency=(4,),
    max_requests_per_level=60,
    max_time_per_level_seconds=20,
    warmup_requests=0,
    tool=BenchmarkTool.BUILTIN,
    adapters=("adapter-1", "adapter-2", "adapter-3"),
)


@asynccontextmanager
async def engine(bodies: list[dict[str, Any]], adapters: int = 3) -> AsyncIterator[str]:
    """A simulated engine; `bodies` gets what it is asked."""

    @web.middleware
    async def record(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.method == "POST":
            bodies.append(msgspec.json.decode(await request.read()))
        response: web.StreamResponse = await handler(request)
        return response

    behaviour = Behaviour(ttft_seconds=0.002, tpot_seconds=0.0005, adapters=adapters)
    app = SimulatedEngine(behaviour).app()
    app.middlewares.append(record)
    async with serving(app) as base_url:
        yield base_url


async def run(base_url: str, spec: BenchmarkSpec = SPEC, seed: int = 7) -> list[Any]:
    result = await run_benchmark(spec, base_url=base_url, model_name="simulated", seed=seed)
    return list(result.levels)


async def test_requests_spread_over_the_adapters() -> None:
    bodies: list[dict[str, Any]] = []
    async with engine(bodies) as base_url:
        [level] = await run(base_url)

    counts = Counter(body["model"] for body in bodies)
    assert level.num_error_requests == 0
    assert set(counts) == set(SPEC.adapters)
    assert min(counts.values()) >= 10


async def test_a_conversation_stays_with_its_adapter() -> None:
    bodies: list[dict[str, Any]] = []
    spec = msgspec.structs.replace(SPEC, turns=3)
    async with engine(bodies) as base_url:
        await run(base_url, spec)

    by_opening: dict[str, set[str]] = {}
    for body in bodies:
        by_opening.setdefault(body["messages"][0]["content"], set()).add(body["model"])
    assert len(by_opening) > 5
    assert all(len(models) == 1 for models in by_opening.values())


async def test_adapter_that_is_not_served_is_named() -> None:
    async with engine([], adapters=2) as base_url:
        with pytest.raises(ModelNotServed, match="adapter 'adapter-3'"):
            await run(base_url)


@pytest.mark.parametrize("tool", [BenchmarkTool.GENAI_BENCH, BenchmarkTool.AIPERF])
def test_other_tools_refuse_adapters(tool: BenchmarkTool) -> None:
    check = check_genai_bench if tool is BenchmarkTool.GENAI_BENCH else check_generated

    with pytest.raises(UnsupportedTraffic, match="expected 'builtin' for adapters"):
        check(msgspec.structs.replace(SPEC, tool=tool))
