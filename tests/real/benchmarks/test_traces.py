"""Each tool that can sends a trace: what arrives is counted at the simulated engine."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool, LevelResult
from schemas.task.dataset import LengthUnit
from schemas.task.trace import TraceSpec, TraceUse
from shared.benchmarks.tools.adapter import Target
from shared.benchmarks.tools.installed_tool import InstalledTool
from shared.benchmarks.tools.present import ADAPTERS, run_benchmark
from shared.datasets.download import DatasetCache
from shared.datasets.hosts import AllowedHosts
from shared.engines.simulated.batch import ANSWER_WORD
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from shared.load_files.places import FilePlaces
from shared.load_files.preparation import fetch_files, prepare_files
from tests.support.benchmark_tools import require_tool
from tests.support.http_server import serving
from tests.support.prefix_share import count_shared

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
MODEL = "simulated"
BEHAVIOUR = Behaviour(ttft_seconds=0.03, tpot_seconds=0.002, slots=64)
TOOLS = (BenchmarkTool.BUILTIN, BenchmarkTool.AIPERF)
BLOCK = 32


@asynccontextmanager
async def engine_that_records() -> AsyncIterator[tuple[str, list[tuple[list[str], int]]]]:
    """Its base URL, and the words of each prompt with the tokens asked for, as they arrive."""
    arrived: list[tuple[list[str], int]] = []

    @web.middleware
    async def record(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.endswith("/chat/completions"):
            body = json.loads(await request.read())
            words = [word for said in body["messages"] for word in said["content"].split()]
            arrived.append((words, body["max_tokens"]))
        response: web.StreamResponse = await handler(request)
        return response

    app = SimulatedEngine(BEHAVIOUR).app()
    app.middlewares.append(record)
    async with serving(app) as base_url:
        yield base_url, arrived


def independent_requests() -> list[dict[str, Any]]:
    return [
        {
            "timestamp": 60 * number,
            "input_length": BLOCK * 5 + number,
            "output_length": 4 + number % 3,
            "hash_ids": [number % 2, 10 + number % 4, 100 + number, 200 + number],
        }
        for number in range(40)
    ]


def agent_sessions() -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for number in range(6):
        first: dict[str, Any] = {
            "timestamp": 200 * number,
            "input_length": 100,
            "hash_ids": [1, 2, 3],
        }
        later: list[dict[str, Any]] = [{"delay": 150, "input_length": 20}] * 3
        lines += [
            {"session_id": f"s{number}", "output_length": 8, **each} for each in (first, *later)
        ]
    return lines


async def measure(
    tool: BenchmarkTool,
    lines: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    **options: Any,
) -> tuple[LevelResult, TraceUse, list[tuple[list[str], int]]]:
    adapter = ADAPTERS[tool]
    if isinstance(adapter, InstalledTool):
        require_tool(adapter.tool, monkeypatch)
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    cache = DatasetCache(
        directory=tmp_path / "cache", hosts=AllowedHosts(), max_file_bytes=2**20, max_bytes=2**20
    )
    spec = BenchmarkSpec(
        tool=tool,
        traffic_scenarios=("trace",),
        max_time_per_level_seconds=60,
        trace=TraceSpec(path="t.jsonl", block_tokens=BLOCK),
        **options,
    )
    fetched = await fetch_files(spec, FilePlaces((tmp_path,), cache))
    async with engine_that_records() as (base_url, arrived):
        target = Target(base_url=base_url, model_name=MODEL)
        load = await prepare_files(spec, fetched, target, tmp_path / "load")
        result = await run_benchmark(spec, target, directory=tmp_path / "run", files=load.files)
    assert load.trace is not None
    [level] = result.levels
    # The first shows that the server answers.
    return level, load.trace, [(words, tokens) for words, tokens in arrived if len(words) > 8]


def assert_share(level: LevelResult, use: TraceUse, arrived: list[tuple[list[str], int]]) -> None:
    assert level.prefix_cache is not None
    sent, asked = level.prefix_cache.trace_share, level.prefix_cache.asked_share
    assert sent is not None
    assert asked == pytest.approx(sent, abs=0.03)
    prompts = [words for words, _ in arrived]
    shared = count_shared(prompts, [[ANSWER_WORD] * tokens for _, tokens in arrived])
    assert shared / sum(map(len, prompts)) == pytest.approx(use.prefix_share, abs=0.03)
    assert sent == pytest.approx(use.prefix_share, abs=0.03)


@pytest.mark.parametrize("tool", TOOLS)
async def test_requests_arrive_with_the_traces_prefixes(
    tool: BenchmarkTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level, use, arrived = await measure(
        tool, independent_requests(), tmp_path, monkeypatch, arrivals=("trace(2)",)
    )

    assert level.num_error_requests == 0
    assert level.num_completed_requests == 40
    assert [len(words) for words, _ in arrived] == [160 + number for number in range(40)]
    assert {tokens for _, tokens in arrived} == {4, 5, 6}
    assert (use.requests, use.used, use.sessions) == (40, 40, 40)
    assert use.length_unit is LengthUnit.WORDS
    assert_share(level, use, arrived)
    assert level.stats.ttft is not None
    assert level.stats.ttft.p50 == pytest.approx(BEHAVIOUR.ttft_seconds, rel=0.3)
    assert level.run_duration == pytest.approx(39 * 0.03, rel=0.15)


@pytest.mark.parametrize("tool", TOOLS)
async def test_sessions_grow_and_wait_for_tools(
    tool: BenchmarkTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level, use, arrived = await measure(
        tool, agent_sessions(), tmp_path, monkeypatch, arrivals=("trace",)
    )

    assert level.num_error_requests == 0
    assert level.num_completed_requests == 24
    assert sorted(len(words) for words, _ in arrived) == [
        length for length in (100, 128, 156, 184) for _ in range(6)
    ]
    assert [(each.turn, each.num_completed_requests) for each in level.turns] == [
        (1, 6),
        (2, 6),
        (3, 6),
        (4, 6),
    ]
    assert (use.used, use.sessions) == (24, 6)
    assert_share(level, use, arrived)


@pytest.mark.parametrize("tool", TOOLS)
async def test_closed_loops_take_requests_of_a_trace(
    tool: BenchmarkTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level, use, arrived = await measure(
        tool,
        independent_requests(),
        tmp_path,
        monkeypatch,
        num_concurrency=(4,),
        max_requests_per_level=30,
        warmup_requests=2,
    )

    assert level.num_error_requests == 0
    assert level.prefix_cache is not None
    assert level.prefix_cache.asked_share == pytest.approx(level.prefix_cache.trace_share, abs=0.03)
    assert 30 <= len(arrived) <= use.used
