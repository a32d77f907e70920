"""The real AIPerf against the real llama.cpp server, and against engines that fail."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from aiohttp import web

from schemas.executor.attempts import AttemptOutcome
from schemas.task.benchmark import (
    BenchmarkResult,
    BenchmarkSpec,
    BenchmarkTool,
)
from schemas.task.prefix_cache import CacheReset
from services.executor.domain.verdict import judge
from shared.benchmarks.aiperf.installation import AIPERF
from shared.benchmarks.experiment_metrics import aggregate
from shared.benchmarks.tools.adapter import LoadPhase, Progress, ServerGone, Target
from shared.benchmarks.tools.present import choose_tool, run_benchmark
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from shared.testing import eventually
from tests.support.benchmark_tools import require_tool
from tests.support.http_server import serving
from tests.support.processes.inference_engine import running_engine

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
MODEL = "smollm2-135m"
SOON_SECONDS = 120.0  # its processes take 10 s to start where nothing else runs
KEY = 'sk-a"b: #c\\d'


@pytest.fixture(autouse=True)
def aiperf(monkeypatch: pytest.MonkeyPatch) -> Path:
    return require_tool(AIPERF, monkeypatch)


async def measured(
    base_url: str,
    directory: Path,
    seen: list[Progress] | None = None,
    *,
    model: str = MODEL,
    api_key: str | None = None,
    **overrides: Any,  # any field of a spec
) -> BenchmarkResult:
    few: dict[str, Any] = {
        "traffic_scenarios": ("D(32,8)",),
        "max_requests_per_level": 6,
        "max_time_per_level_seconds": 60.0,
        "tool": BenchmarkTool.AIPERF,
    }
    return await run_benchmark(
        BenchmarkSpec(**few | overrides),
        Target(base_url=base_url, model_name=model, api_key=api_key),
        directory=directory,
        on_progress=seen.append if seen is not None else None,
    )


def tool_processes() -> list[psutil.Process]:
    """Those that we started: AIPerf names each of its processes after itself."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[:1] and "aiperf" in " ".join(process.cmdline()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


def prompts_in(directory: Path) -> list[Path]:
    return list(directory.rglob("prompts"))


def is_measuring(seen: list[Progress]) -> bool:
    return bool(seen) and seen[-1].phase is LoadPhase.MEASURING


async def test_a_real_model_is_measured_by_the_real_tool(tmp_path: Path) -> None:
    seen: list[Progress] = []
    with running_engine("llamacpp", {"threads": 1, "parallel": 2}, model=MODEL) as engine:
        result = await measured(engine.base_url, tmp_path, seen, num_concurrency=(2,))

    # It is never taken but by its name.
    assert choose_tool(BenchmarkSpec()) is not BenchmarkTool.AIPERF
    assert (result.tool, result.tool_version) == (BenchmarkTool.AIPERF, AIPERF.version)
    assert not result.simulated
    [level] = result.levels
    assert (level.num_completed_requests, level.num_error_requests) == (6, 0)
    output = level.stats.num_output_tokens
    assert output is not None
    assert (output.min, output.max) == (8, 8)
    assert not level.tokens_estimated
    assert level.prefix_cache is not None
    assert level.prefix_cache.reset is not CacheReset.FAILED
    assert result.metrics == aggregate(result.levels)
    assert judge(result).outcome is AttemptOutcome.SUCCEEDED
    assert seen[0].phase is LoadPhase.WARMING_UP
    assert (seen[-1].phase, seen[-1].completed) == (LoadPhase.MEASURING, 6)
    assert tool_processes() == []
    # The requests are told in the result; their prompts are no more.
    assert not prompts_in(tmp_path)


async def test_timed_arrivals_failures_and_a_key(tmp_path: Path) -> None:
    engine = SimulatedEngine(
        Behaviour(model="m", ttft_seconds=0.01, tpot_seconds=0.001, slots=64, error_rate=0.0)
    )
    keys: set[str | None] = set()

    @web.middleware
    async def watch(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.endswith("/completions"):
            keys.add(request.headers.get("Authorization"))
            if len(engine_requests) % 3 == 2:
                engine_requests.append(request.path)
                raise web.HTTPServiceUnavailable
            engine_requests.append(request.path)
        response: web.StreamResponse = await handler(request)
        return response

    engine_requests: list[str] = []
    app = engine.app()
    app.middlewares.append(watch)
    async with serving(app) as base_url:
        result = await measured(
            base_url,
            tmp_path,
            model="m",
            api_key=KEY,
            arrivals=("poisson(40)", "burst(20,4)"),
            max_requests_per_level=12,
        )

    assert [level.arrivals for level in result.levels] == ["poisson(40)", "burst(20,4)"]
    for level in result.levels:
        assert level.num_requests == 12
        assert level.error_codes_frequency == {"503": 4}
        assert level.lateness_p99_seconds is not None
    assert result.simulated
    assert keys == {f"Bearer {KEY}"}
    assert_written_nowhere(tmp_path, b"sk-a")


def assert_written_nowhere(directory: Path, secret: bytes) -> None:
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if secret in path.read_bytes()]


@pytest.mark.parametrize(
    "load",
    [
        {"num_concurrency": (2,)},
        {"arrivals": ("constant(4)",), "think_seconds": 0.1},
    ],
    ids=["closed", "timed"],
)
async def test_conversations_carry_the_servers_answers(
    tmp_path: Path, load: dict[str, Any]
) -> None:
    behaviour = Behaviour(model="m", step_seconds=0.001, prefix_cache=True)
    bodies: list[dict[str, Any]] = []

    @web.middleware
    async def watch(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.endswith("/completions"):
            bodies.append(msgspec.json.decode(await request.read()))
        response: web.StreamResponse = await handler(request)
        return response

    app = SimulatedEngine(behaviour).app()
    app.middlewares.append(watch)
    async with serving(app) as base_url:
        result = await measured(
            base_url,
            tmp_path,
            model="m",
            traffic_scenarios=("D(160,32)",),
            max_requests_per_level=24,
            warmup_requests=3,
            turns=3,
            **load,
        )

    [level] = result.levels
    assert (level.num_requests, level.num_error_requests) == (24, 0)
    assert [each.turn for each in level.turns] == [1, 2, 3]
    assert [each.mean_input_tokens for each in level.turns] == [160, 352, 544]
    longest = [body["messages"] for body in bodies if len(body["messages"]) == 5]
    assert longest
    for messages in longest:
        assert [each["role"] for each in messages] == ["user", "assistant"] * 2 + ["user"]
        assert [each["content"] for each in messages[1::2]] == [" token" * 32] * 2
    use = level.prefix_cache
    assert use is not None
    assert use.asked_share is not None
    assert use.hit_share is not None
    # 192 and 384 of 1056 tokens had been sent or answered; whole blocks of 176 and 368 are found.
    assert use.asked_share == pytest.approx(576 / 1056, abs=0.1)
    assert use.hit_share == pytest.approx(use.asked_share * 544 / 576, abs=0.08)


async def test_a_cancelled_benchmark_leaves_no_process(tmp_path: Path) -> None:
    seen: list[Progress] = []
    with running_engine("llamacpp", {"threads": 1}, model=MODEL) as engine:
        running = asyncio.create_task(
            measured(engine.base_url, tmp_path, seen, max_requests_per_level=1000)
        )
        await eventually(lambda: is_measuring(seen), within_seconds=SOON_SECONDS)
        before = tool_processes()

        running.cancel()
        await asyncio.wait({running})

    assert running.cancelled()
    assert len(before) > 1
    await eventually(lambda: not [process for process in before if is_alive(process)])
    assert not prompts_in(tmp_path)


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


async def test_dying_server_is_told_with_measurements(tmp_path: Path) -> None:
    seen: list[Progress] = []
    with running_engine("llamacpp", {"threads": 1}, model=MODEL) as engine:
        running = asyncio.create_task(
            measured(engine.base_url, tmp_path, seen, max_requests_per_level=200)
        )
        await eventually(lambda: is_measuring(seen), within_seconds=SOON_SECONDS)
        engine.process.kill()

        with pytest.raises(ServerGone) as gone:
            await running

    partly = gone.value.measured
    assert partly is not None
    assert partly.metrics.total_requests == 200
    assert partly.metrics.total_error_requests > 0
    assert judge(partly).outcome is AttemptOutcome.FAILED
    assert tool_processes() == []
