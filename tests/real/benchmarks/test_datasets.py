"""Each tool sends the prompts of a dataset: what arrives is counted at the simulated engine."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from schemas.task.benchmark import BenchmarkResult, BenchmarkSpec, BenchmarkTool
from schemas.task.dataset import DatasetSpec
from shared.benchmarks.builtin.generator import run_benchmark as run_builtin
from shared.benchmarks.prompts import write_prompts
from shared.benchmarks.tools.adapter import LoadFiles, Target
from shared.benchmarks.tools.installed_tool import InstalledTool
from shared.benchmarks.tools.present import ADAPTERS, run_benchmark
from shared.benchmarks.traffic import PromptText
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from shared.words import WORDS
from tests.support.benchmark_tools import require_tool
from tests.support.http_server import serving

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
MODEL = "simulated"
PROMPTS = [
    PromptText(" ".join(WORDS[20 * number :][: 5 + number]), 5 + number, 3 + number)
    for number in range(12)
]
ANSWERS = {prompt.text: prompt.num_output_tokens for prompt in PROMPTS}


@asynccontextmanager
async def engine_that_records() -> AsyncIterator[tuple[str, list[tuple[str, int]]]]:
    """Its base URL, and prompts and tokens asked for of each request as they arrive."""
    arrived: list[tuple[str, int]] = []

    @web.middleware
    async def record(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.endswith("/chat/completions"):
            body = json.loads(await request.read())
            content = body["messages"][-1]["content"]
            if isinstance(content, list):
                content = "".join(part["text"] for part in content)
            arrived.append((content, body.get("max_tokens") or body["max_completion_tokens"]))
        response: web.StreamResponse = await handler(request)
        return response

    app = SimulatedEngine(Behaviour(ttft_seconds=0.002, tpot_seconds=0.0005)).app()
    app.middlewares.append(record)
    async with serving(app) as base_url:
        yield base_url, arrived


def spec_of(tool: BenchmarkTool, scenario: str, **options: Any) -> BenchmarkSpec:
    return BenchmarkSpec(
        tool=tool,
        traffic_scenarios=(scenario,),
        num_concurrency=(2,),
        max_requests_per_level=12,
        max_time_per_level_seconds=30,
        warmup_requests=0,
        dataset=DatasetSpec(path="prompts"),
        **options,
    )


async def measure(
    tool: BenchmarkTool, scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[BenchmarkResult, list[tuple[str, int]]]:
    adapter = ADAPTERS[tool]
    if isinstance(adapter, InstalledTool):
        require_tool(adapter.tool, monkeypatch)
    prompts = tmp_path / "prompts.jsonl"
    write_prompts(prompts, PROMPTS)
    async with engine_that_records() as (base_url, arrived):
        result = await run_benchmark(
            spec_of(tool, scenario),
            Target(base_url=base_url, model_name=MODEL),
            directory=tmp_path / "run",
            files=LoadFiles(prompts=prompts),
        )
    return result, arrived


@pytest.mark.parametrize("tool", list(ADAPTERS))
async def test_prompts_arrive_as_they_are(
    tool: BenchmarkTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, arrived = await measure(tool, "dataset", tmp_path, monkeypatch)

    assert result.metrics.total_error_requests == 0
    assert result.metrics.total_completed_requests >= 12
    sent = [(text, tokens) for text, tokens in arrived if text in ANSWERS]
    assert len(sent) >= 12
    if tool is BenchmarkTool.GENAI_BENCH:
        # It draws with repetition, and has one length of answers for all.
        assert {tokens for _, tokens in sent} == {round(sum(ANSWERS.values()) / len(ANSWERS))}
        return
    assert all(tokens == ANSWERS[text] for text, tokens in sent)
    assert {text for text, _ in sent} == set(ANSWERS)


@pytest.mark.parametrize("tool", list(ADAPTERS))
async def test_texts_are_cut_or_joined_to_wanted_lengths(
    tool: BenchmarkTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, arrived = await measure(tool, "D(30,7)", tmp_path, monkeypatch)

    assert result.metrics.total_error_requests == 0
    beginnings = tuple(prompt.text for prompt in PROMPTS)
    sent = [(text.split(), tokens) for text, tokens in arrived if text.startswith(beginnings)]
    assert len(sent) >= 12
    for words, tokens in sent:
        assert tokens == 7
        if tool is not BenchmarkTool.GENAI_BENCH:  # which joins texts without a space
            assert 29 <= len(words) <= 31


async def test_several_processes_share_the_prompts_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.benchmarks.builtin.generator.FEWEST_CLIENTS", 1)
    monkeypatch.setattr("shared.benchmarks.builtin.load_processes.Crew.count_for", lambda *_: 2)
    prompts = tmp_path / "prompts.jsonl"
    write_prompts(prompts, PROMPTS)
    async with engine_that_records() as (base_url, arrived):
        result = await run_builtin(
            spec_of(BenchmarkTool.BUILTIN, "dataset"),
            base_url=base_url,
            model_name=MODEL,
            processes=2,
            files=LoadFiles(prompts=prompts),
        )

    assert result.levels[0].client_processes == 2
    sent = [(text, tokens) for text, tokens in arrived if text in ANSWERS]
    assert {text for text, _ in sent[:12]} == set(ANSWERS)
    assert all(tokens == ANSWERS[text] for text, tokens in sent)
