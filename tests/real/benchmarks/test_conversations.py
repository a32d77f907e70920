"""Conversations against servers: their answers in the history, and what the prefix cache had."""

from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from schemas.task.benchmark import (
    BenchmarkResult,
    BenchmarkSpec,
    LevelResult,
)
from schemas.task.prefix_cache import CacheReset
from shared.benchmarks.builtin.generator import run_benchmark
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from tests.support.http_server import serving
from tests.support.processes.inference_engine import running_engine

SPEC = BenchmarkSpec(
    traffic_scenarios=("D(160,32)",), num_concurrency=(2,), max_requests_per_level=40, turns=4
)
# 192, 384 and 576 tokens had been sent or answered before, of 1792 in four prompts; the engine has
# whole blocks of 16, and nothing of an answer's last token: 176, 368 and 560.
ASKED_SHARE, TRUE_SHARE = 1152 / 1792, 1104 / 1792


def engine(seen: list[dict[str, Any]], **behaviour: Any) -> AbstractAsyncContextManager[str]:
    fast: dict[str, Any] = {"model": "m", "step_seconds": 0.001, "prefix_cache": True}
    app = SimulatedEngine(Behaviour(**fast | behaviour)).app()

    @web.middleware
    async def watch(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.endswith("/completions"):
            seen.append(msgspec.json.decode(await request.read()))
        response: web.StreamResponse = await handler(request)
        return response

    app.middlewares.append(watch)
    return serving(app)


async def measure(base_url: str, spec: BenchmarkSpec = SPEC, model: str = "m") -> BenchmarkResult:
    return await run_benchmark(spec, base_url=base_url, model_name=model, processes=1)


def shares_of(level: LevelResult) -> tuple[float, float]:
    use = level.prefix_cache
    assert use is not None
    assert use.asked_share is not None
    assert use.hit_share is not None
    return use.asked_share, use.hit_share


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
async def test_history_has_answers_and_hit_rates(
    dialect: str,
) -> None:
    seen: list[dict[str, Any]] = []
    async with engine(seen, dialect=dialect) as base_url:
        [level] = (await measure(base_url)).levels

    asked, realised = shares_of(level)
    # Of the conversations that the level's end cuts off, the first turns are in it alone.
    assert asked == pytest.approx(ASKED_SHARE, abs=0.1)
    assert realised == pytest.approx(asked * TRUE_SHARE / ASKED_SHARE, abs=0.05)
    assert level.prefix_cache is not None
    assert level.prefix_cache.reset is CacheReset.VERIFIED
    assert level.set_aside is None
    by_turn = sum(each.num_completed_requests for each in level.turns)
    assert by_turn == level.num_completed_requests
    assert {len(body["messages"]) for body in seen} == {1, 3, 5, 7}
    for body in seen:
        roles = [message["role"] for message in body["messages"]]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
        for answer in body["messages"][1::2]:
            assert answer["content"] == " token" * 32


async def test_without_prefix_cache_nothing_is_found() -> None:
    async with engine([], prefix_cache=False) as base_url:
        [level] = (await measure(base_url)).levels

    asked, realised = shares_of(level)
    assert asked > 0.4
    assert realised == 0


@pytest.mark.long
async def test_llama_cpp_tells_what_it_had_of_each_turn() -> None:
    spec = msgspec.structs.replace(
        SPEC,
        traffic_scenarios=("D(32,4)",),
        num_concurrency=(1,),
        max_requests_per_level=6,
        turns=3,
    )
    with running_engine("llamacpp", {"threads": 1, "parallel": 1}, model="smollm2-135m") as running:
        [level] = (await measure(running.base_url, spec, "smollm2-135m")).levels

    assert level.num_error_requests == 0
    asked, realised = shares_of(level)
    assert 0.3 < asked < 0.7
    # Its cache has all that was said before, but for what its template writes between.
    assert realised == pytest.approx(asked, abs=0.15)
    first, second, third = level.turns
    assert first.mean_input_tokens < second.mean_input_tokens < third.mean_input_tokens
