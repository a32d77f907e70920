"""Embeddings, rerank and images by each tool, on an engine of known times and on a real one."""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from schemas.task.benchmark import (
    BenchmarkSpec,
    BenchmarkTool,
    LevelMark,
    LevelResult,
    LoadSearch,
)
from schemas.task.modality import Modality
from shared.benchmarks.builtin.generator import run_benchmark as run_builtin
from shared.benchmarks.chat_server import ChatServer, RequestFailed
from shared.benchmarks.tools.adapter import ServerUnreachable, Target
from shared.benchmarks.tools.installed_tool import InstalledTool
from shared.benchmarks.tools.present import ADAPTERS, run_benchmark
from shared.benchmarks.traffic import parse_scenario
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from tests.support.benchmark_tools import require_tool
from tests.support.http_server import serving
from tests.support.processes.inference_engine import running_engine

FIRST, ITEM, TPOT, REQUESTS, TRUTH = 0.4, 0.05, 0.01, 16, 0.05
MODEL, LLAMA_MODEL = "simulated", "smollm2-135m"
AT_ONCE = {BenchmarkTool.GENAI_BENCH: 1}  # it sends embeddings and rerank one after the other
OF_BUSY_HOST = {LevelMark.CLIENT_LIMITED, LevelMark.SENT_LATE, LevelMark.NOT_STEADY}
# The scenario, its items, and the tokens of a whole request as the engine counts them.
CASES = {
    Modality.EMBEDDINGS: ("E(64)", 8, 8 * 64),
    Modality.RERANK: ("R(40,10)", 6, 6 * 50),
    Modality.IMAGES: ("I(96,64,2)", 1, 100 + 2 * 256),
}


def make_spec(tool: BenchmarkTool, modality: Modality, **asked: Any) -> BenchmarkSpec:
    scenario, batch_size, _ = CASES[modality]
    at_once = AT_ONCE.get(tool, 4) if not modality.has_tokens else 4
    given: dict[str, Any] = {
        "tool": tool,
        "traffic_scenarios": (scenario,),
        "num_concurrency": (at_once,),
        "batch_size": batch_size,
        "max_requests_per_level": REQUESTS,
        "max_time_per_level_seconds": 60,
        "warmup_requests": 2,
    }
    return BenchmarkSpec(**given | asked)


async def measure(
    tool: BenchmarkTool, spec: BenchmarkSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[LevelResult, list[dict[str, Any]]]:
    adapter = ADAPTERS[tool]
    if isinstance(adapter, InstalledTool):
        require_tool(adapter.tool, monkeypatch)
    bodies: list[dict[str, Any]] = []

    @web.middleware
    async def record(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.method == "POST":
            bodies.append({"path": request.path, **msgspec.json.decode(await request.read())})
        response: web.StreamResponse = await handler(request)
        return response

    behaviour = Behaviour(ttft_seconds=FIRST, item_seconds=ITEM, tpot_seconds=TPOT, slots=64)
    app = SimulatedEngine(behaviour).app()
    app.middlewares.append(record)
    async with serving(app) as base_url:
        target = Target(base_url=base_url, model_name=MODEL)
        result = await run_benchmark(spec, target, directory=tmp_path / "run")
    [level] = result.levels
    assert level.num_error_requests == 0
    assert level.num_completed_requests >= REQUESTS // 2
    return level, bodies


def assert_true(level: LevelResult, seconds: float) -> None:
    """Latency and rates within 5 %, or marked."""
    latency = level.stats.e2e_latency
    assert latency is not None
    if not OF_BUSY_HOST & set(level.marks):
        assert latency.p50 == pytest.approx(seconds, rel=TRUTH)
    if not (OF_BUSY_HOST | {LevelMark.LITTLES_LAW}) & set(level.marks):
        rate_per_s = level.num_concurrency / seconds
        assert level.requests_per_second == pytest.approx(rate_per_s, rel=2 * TRUTH)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("modality", [Modality.EMBEDDINGS, Modality.RERANK])
@pytest.mark.parametrize("tool", list(ADAPTERS))
async def test_whole_answers_are_measured_as_they_are(
    tool: BenchmarkTool, modality: Modality, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, batch_size, tokens = CASES[modality]
    level, bodies = await measure(tool, make_spec(tool, modality), tmp_path, monkeypatch)

    assert_true(level, FIRST + batch_size * ITEM)
    assert level.items_per_second == pytest.approx(batch_size * level.requests_per_second)
    assert level.mean_output_throughput_tokens_per_s is None
    assert level.stats.ttft is level.stats.tpot is level.stats.num_output_tokens is None
    assert level.stats.num_input_tokens is not None
    # genai-bench joins lines of its own text without a space: some of its words are one.
    assert level.stats.num_input_tokens.p50 == pytest.approx(tokens, rel=0.15)
    items = "input" if modality is Modality.EMBEDDINGS else "documents"
    assert {len(body[items]) for body in bodies} == {batch_size}
    assert {body["path"] for body in bodies} == {
        "/v1/embeddings" if modality is Modality.EMBEDDINGS else "/v1/rerank"
    }


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("tool", list(ADAPTERS))
async def test_images_are_chats_with_all_their_measures(
    tool: BenchmarkTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec(tool, Modality.IMAGES, batch_size=1)
    level, bodies = await measure(tool, spec, tmp_path, monkeypatch)

    assert_true(level, FIRST + 2 * ITEM + 99 * TPOT)
    assert level.stats.ttft is not None
    assert level.stats.tpot is not None
    assert level.stats.num_output_tokens is not None
    assert level.stats.num_output_tokens.p50 == 100
    assert level.stats.num_input_tokens is not None
    assert level.stats.num_input_tokens.p50 == pytest.approx(CASES[Modality.IMAGES][2], rel=0.05)
    images = [
        [part["image_url"]["url"] for part in body["messages"][0]["content"] if "image_url" in part]
        for body in bodies
        if not isinstance(body["messages"][0]["content"], str)
    ]
    assert len(images) >= REQUESTS // 2
    assert {len(urls) for urls in images} == {2}
    assert len({url for urls in images for url in urls}) > REQUESTS // 2


@pytest.mark.parametrize("modality", [Modality.EMBEDDINGS, Modality.RERANK])
async def test_built_in_sends_them_at_times_of_their_own(
    modality: Modality, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = BenchmarkTool.BUILTIN
    spec = make_spec(
        tool, modality, arrivals=("constant(20)",), max_requests_per_level=40, batch_size=1
    )
    level, _ = await measure(tool, spec, tmp_path, monkeypatch)

    assert level.items_per_second == level.requests_per_second
    assert LevelMark.SENT_LATE in level.marks or level.requests_per_second == pytest.approx(
        20, rel=0.1
    )


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_aiperf_sends_embeddings_at_their_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = BenchmarkTool.AIPERF
    spec = make_spec(
        tool, Modality.EMBEDDINGS, arrivals=("burst(10,5)",), max_requests_per_level=40
    )
    level, bodies = await measure(tool, spec, tmp_path, monkeypatch)

    assert {len(body["input"]) for body in bodies} == {8}
    assert {LevelMark.SENT_LATE, LevelMark.CLIENT_LIMITED} & set(
        level.marks
    ) or level.requests_per_second == pytest.approx(10, rel=0.3)


@pytest.mark.parametrize("scenario", ["E(8)", "R(8,4)"])
@pytest.mark.parametrize(
    ("fault", "code"),
    [({"error_rate": 1.0}, "500"), ({"cut_rate": 1.0}, "disconnected"), ({"slots": 0}, "timeout")],
)
async def test_failed_requests_are_counted_by_their_reason(
    scenario: str, fault: dict[str, Any], code: str
) -> None:
    engine = SimulatedEngine(Behaviour(ttft_seconds=0.01, **fault))
    size = parse_scenario(scenario, 2)(random.Random(0))
    async with (
        serving(engine.app()) as base_url,
        ChatServer(base_url=base_url, model_name=MODEL) as server,
    ):
        outcome = await server.request(size, random.Random(0), 0.5)

    assert isinstance(outcome, RequestFailed)
    assert outcome.code == code


@pytest.mark.long
async def test_greatest_load_of_embeddings_is_searched() -> None:
    """Two are served at once, in 0.2 s; of three some wait, of four all take 0.4 s."""
    spec = BenchmarkSpec(
        traffic_scenarios=("E(8)",),
        load_search=LoadSearch(min=1, max=8, tolerance=0.3),
        constraints="e2e:p99<0.35s",
        max_requests_per_level=24,
        max_time_per_level_seconds=20,
    )
    engine = SimulatedEngine(Behaviour(ttft_seconds=0.2, slots=2))
    async with serving(engine.app()) as base_url:
        result = await run_builtin(spec, base_url=base_url, model_name=MODEL)

    boundary = result.metrics.boundary
    assert boundary is not None
    assert boundary.low in {2, 3}
    assert boundary.high in {3, 4}
    assert result.metrics.mean_items_per_second is not None


LLAMA: dict[str, Any] = {"threads": 1, "ctx-size": 2048, "parallel": 1}


@pytest.mark.parametrize("scenario", ["E(8)", "R(8,4)"])
async def test_engine_of_chats_alone_says_what_it_lacks(scenario: str) -> None:
    flag = "embeddings" if scenario.startswith("E") else "reranking"
    spec = BenchmarkSpec(traffic_scenarios=(scenario,))
    with (
        running_engine("llamacpp", LLAMA, model=LLAMA_MODEL) as engine,
        pytest.raises(ServerUnreachable, match=f"501.*--{flag}"),
    ):
        await run_builtin(spec, base_url=engine.base_url, model_name=LLAMA_MODEL)


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "scenario"),
    [({"embeddings": True, "pooling": "mean"}, "E(16)"), ({"reranking": True}, "R(16,4)")],
)
async def test_llama_cpp_answers_with_its_flags(flags: dict[str, Any], scenario: str) -> None:
    spec = BenchmarkSpec(
        traffic_scenarios=(scenario,), batch_size=3, max_requests_per_level=4, warmup_requests=1
    )
    with running_engine("llamacpp", LLAMA | flags, model=LLAMA_MODEL) as engine:
        result = await run_builtin(spec, base_url=engine.base_url, model_name=LLAMA_MODEL)

    [level] = result.levels
    assert (level.num_completed_requests, level.num_error_requests) == (4, 0)
    assert level.items_per_second == pytest.approx(3 * level.requests_per_second)
    assert not level.tokens_estimated
    assert level.stats.num_input_tokens is not None
    assert level.stats.num_input_tokens.min >= 3 * 16
