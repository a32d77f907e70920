"""Each tool on an engine whose times are known: its figures are right within 5 %, or marked.

The truth is the engine's own: a first token after so long, each further one after so long, and what
a client on the same host adds, which is part of what is measured.
"""

from pathlib import Path
from typing import Any

import pytest

from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool, LevelMark, LevelResult
from schemas.task.dataset import DatasetSpec
from schemas.task.trace import TraceSpec
from shared.benchmarks.prompts import write_prompts
from shared.benchmarks.tools.adapter import LoadFiles, Target
from shared.benchmarks.tools.installed_tool import InstalledTool
from shared.benchmarks.tools.present import ADAPTERS, run_benchmark
from shared.benchmarks.traced import TraceForm, write_trace
from shared.benchmarks.traffic import PromptText
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from shared.traces.lines import TraceLine
from shared.traces.sessions import take_sessions
from shared.words import WORDS
from tests.support.benchmark_tools import require_tool
from tests.support.http_server import serving

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
TTFT, TPOT, ANSWER, REQUESTS = 0.6, 0.015, 41, 16
MODEL = "simulated"
TRUTH = 0.05
TOOLS = list(ADAPTERS)
OF_BUSY_HOST = {LevelMark.CLIENT_LIMITED, LevelMark.SENT_LATE, LevelMark.NOT_STEADY}
TRACE_TOOLS = (BenchmarkTool.BUILTIN, BenchmarkTool.AIPERF)


def files_of(kind: str, tmp_path: Path) -> LoadFiles:
    path = tmp_path / kind
    if kind == "trace":
        lines = [
            TraceLine(timestamp=60.0 * n, input_length=96, output_length=ANSWER, hash_ids=(1, 2))
            for n in range(REQUESTS)
        ]
        trace = take_sessions(lines, TraceSpec(path="t", block_tokens=32), 1000)
        write_trace(path, TraceForm(block_tokens=32), trace.sessions)
        return LoadFiles(trace=path)
    if kind == "dataset":
        texts = [PromptText(" ".join(WORDS[n : n + 20]), 20, ANSWER) for n in range(3 * REQUESTS)]
        write_prompts(path, texts)
        return LoadFiles(prompts=path)
    return LoadFiles()


async def measure(
    tool: BenchmarkTool,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    **behaviour: Any,
) -> LevelResult:
    adapter = ADAPTERS[tool]
    if isinstance(adapter, InstalledTool):
        require_tool(adapter.tool, monkeypatch)
    options_by_kind: dict[str, dict[str, Any]] = {
        "made": {"traffic_scenarios": (f"D(20,{ANSWER})",), "num_concurrency": (4,)},
        "dataset": {
            "traffic_scenarios": ("dataset",),
            "num_concurrency": (4,),
            "dataset": DatasetSpec(path="p"),
        },
        "trace": {
            "traffic_scenarios": ("trace",),
            "arrivals": ("trace",),
            "trace": TraceSpec(path="t"),
        },
    }
    spec = BenchmarkSpec(
        tool=tool,
        max_requests_per_level=REQUESTS,
        max_time_per_level_seconds=60,
        warmup_requests=2,
        **options_by_kind[kind],
    )
    engine = Behaviour(ttft_seconds=TTFT, tpot_seconds=TPOT, slots=64, **behaviour)
    async with serving(SimulatedEngine(engine).app()) as base_url:
        result = await run_benchmark(
            spec,
            Target(base_url=base_url, model_name=MODEL),
            directory=tmp_path / "run",
            files=files_of(kind, tmp_path),
        )
    [level] = result.levels
    assert level.num_error_requests == 0
    return level


def assert_true(level: LevelResult, *, ttft: float = TTFT, tpot: float = TPOT) -> None:
    assert level.stats.ttft is not None
    assert level.stats.tpot is not None
    assert level.stats.e2e_latency is not None
    if OF_BUSY_HOST & set(level.marks):
        return  # a busy host: it says so
    assert level.stats.ttft.p50 == pytest.approx(ttft, rel=TRUTH)
    assert level.stats.tpot.p50 == pytest.approx(tpot, rel=TRUTH)
    assert level.stats.e2e_latency.p50 == pytest.approx(TTFT + (ANSWER - 1) * TPOT, rel=TRUTH)


@pytest.mark.parametrize(
    ("tool", "kind"),
    [
        *((tool, kind) for tool in TOOLS for kind in ("made", "dataset")),
        *((tool, "trace") for tool in TRACE_TOOLS),
    ],
)
async def test_times_and_rates_are_the_engines(
    tool: BenchmarkTool, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = await measure(tool, kind, tmp_path, monkeypatch)

    assert_true(level)
    seconds = TTFT + (ANSWER - 1) * TPOT
    rate = 1 / 0.06 if kind == "trace" else 4 / seconds
    # A busy host, or a tool that counts its start and its end, too.
    if {*OF_BUSY_HOST, LevelMark.LITTLES_LAW} & set(level.marks):
        return
    assert level.requests_per_second == pytest.approx(rate, rel=TRUTH)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_thoughts_alone_are_an_answer(
    field: str, tool: BenchmarkTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = await measure(tool, "made", tmp_path, monkeypatch, reasoning_field=field)

    assert_true(level)


@pytest.mark.parametrize("tool", TOOLS)
async def test_several_tokens_a_piece_are_several(
    tool: BenchmarkTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = await measure(tool, "made", tmp_path, monkeypatch, piece_tokens=4)

    assert level.stats.num_output_tokens is not None
    assert level.stats.num_output_tokens.mean == ANSWER
    first_piece_seconds = TTFT + 3 * TPOT
    if tool is BenchmarkTool.GENAI_BENCH:
        assert LevelMark.ANSWER_PIECES in level.marks
        return
    assert_true(level, ttft=first_piece_seconds)
    assert LevelMark.ANSWER_PIECES not in level.marks
