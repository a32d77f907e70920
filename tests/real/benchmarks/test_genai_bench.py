"""The real genai-bench against the real llama.cpp server, and against servers that fail."""

import asyncio
import os
import re
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from schemas.executor.attempts import AttemptOutcome, FailureKind
from schemas.task.benchmark import BenchmarkResult, BenchmarkSpec, BenchmarkTool, LevelResult
from services.executor.domain.verdict import judge
from shared.benchmarks.experiment_metrics import aggregate
from shared.benchmarks.tools.adapter import LoadPhase, Progress, ServerGone, Target
from shared.benchmarks.tools.present import choose_tool, run_benchmark
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from shared.testing import eventually
from tests.support.benchmark_tools import processes_of, require_genai_bench
from tests.support.http_server import serving
from tests.support.paths import ROOT
from tests.support.processes.inference_engine import running_engine

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
MODEL = "smollm2-135m"
SOON_SECONDS = 60.0  # it takes 6 to 15 s to start
SAME = (
    *("scenario", "num_concurrency", "run_duration", "requests_per_second"),
    *("num_completed_requests", "num_error_requests", "error_codes_frequency"),
    *("mean_output_throughput_tokens_per_s", "mean_input_throughput_tokens_per_s"),
    "mean_total_tokens_throughput_tokens_per_s",
)


@pytest.fixture(autouse=True)
def genai_bench(monkeypatch: pytest.MonkeyPatch) -> Path:
    return require_genai_bench(monkeypatch)


def make_spec(**overrides: Any) -> BenchmarkSpec:  # any field
    few: dict[str, Any] = {
        "traffic_scenarios": ("D(32,8)",),
        "max_requests_per_level": 4,
        "max_time_per_level_seconds": 60.0,
    }
    return BenchmarkSpec(**few | overrides)


async def measured(
    base_url: str,
    directory: Path,
    seen: list[Progress] | None = None,
    *,
    model: str = MODEL,
    **overrides: Any,  # any field of a spec
) -> BenchmarkResult:
    return await run_benchmark(
        make_spec(**overrides),
        Target(base_url=base_url, model_name=model),
        directory=directory,
        on_progress=seen.append if seen is not None else None,
    )


def written(directory: Path) -> list[dict[str, Any]]:
    """The aggregates of the result files, oldest first."""
    paths = sorted(directory.rglob("D*_time_*s.json"), key=lambda path: path.stat().st_mtime_ns)
    return [msgspec.json.decode(path.read_bytes())["aggregated_metrics"] for path in paths]


def files_in(directory: Path, pattern: str) -> list[Path]:
    return list(directory.rglob(pattern))


def is_measuring(seen: list[Progress]) -> bool:
    return bool(seen) and seen[-1].phase is LoadPhase.MEASURING


async def test_a_real_model_is_measured_by_the_real_tool(tmp_path: Path) -> None:
    seen: list[Progress] = []
    before = datetime.now(UTC)
    with running_engine("llamacpp", {"threads": 1, "parallel": 2}, model=MODEL) as engine:
        result = await measured(engine.base_url, tmp_path, seen, num_concurrency=(1, 2))
    after = datetime.now(UTC)

    assert choose_tool(BenchmarkSpec()) is BenchmarkTool.GENAI_BENCH
    assert (result.tool, result.tool_version, result.simulated) == ("genai-bench", "0.0.5", False)
    files = written(tmp_path)
    assert len(files) == 2
    for level, file in zip(result.levels, files, strict=True):
        assert_is(level, file)
        assert_was_within(level, before, after)
    first, second = result.levels
    assert first.finished_at <= second.started_at
    assert result.metrics == aggregate(result.levels)
    assert result.metrics.success_rate == 1.0
    assert judge(result).outcome is AttemptOutcome.SUCCEEDED
    assert_progressed(seen)
    # Ended before its plots, which nobody looks at.
    assert not files_in(tmp_path, "*.xlsx")
    assert processes_of(tmp_path) == []


def assert_is(level: LevelResult, file: dict[str, Any]) -> None:
    told = msgspec.to_builtins(level)
    assert {name: told[name] for name in SAME} == {name: file[name] for name in SAME}
    assert told["stats"] == {name: file["stats"][name] for name in told["stats"]}
    output = level.stats.num_output_tokens
    assert output is not None
    assert (output.min, output.max) == (8, 8)


def assert_was_within(level: LevelResult, before: datetime, after: datetime) -> None:
    assert before < level.started_at < level.finished_at < after
    lasted = timedelta(seconds=level.run_duration)
    assert abs(level.finished_at - level.started_at - lasted) < timedelta(milliseconds=1)


def assert_progressed(seen: list[Progress]) -> None:
    assert seen[0].phase is LoadPhase.WARMING_UP
    assert [(each.level_no, each.phase) for each in seen] == sorted(
        ((each.level_no, each.phase) for each in seen),
        key=lambda stage: (stage[0], stage[1] is LoadPhase.MEASURING),
    )
    for number in (1, 2):
        of_level = [each for each in seen if each.level_no == number]
        assert len(of_level) >= 2
        assert of_level[-1].completed >= 4


async def test_a_cancelled_benchmark_leaves_no_process(tmp_path: Path) -> None:
    seen: list[Progress] = []
    with running_engine("llamacpp", {"threads": 1}, model=MODEL) as engine:
        running = asyncio.create_task(
            measured(engine.base_url, tmp_path, seen, max_requests_per_level=10_000)
        )
        await eventually(lambda: is_measuring(seen), within_seconds=SOON_SECONDS)
        assert len(processes_of(tmp_path)) == 1

        running.cancel()
        await asyncio.wait({running})

    assert running.cancelled()
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
async def test_a_killed_benchmark_leaves_no_process(tmp_path: Path, sent: signal.Signals) -> None:
    with running_engine("llamacpp", {"threads": 1}, model=MODEL) as engine:
        command = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.cli", "bench", engine.base_url),
            *("--max-requests", "10000", "--output", str(tmp_path / "files")),
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await eventually(lambda: has_started(tmp_path), within_seconds=SOON_SECONDS)
        command.send_signal(sent)
        async with asyncio.timeout(10):
            await command.wait()

        await eventually(lambda: processes_of(tmp_path / "files") == [], within_seconds=2)
    assert command.returncode == (-signal.SIGKILL if sent is signal.SIGKILL else 130)
    if sent is signal.SIGTERM:
        assert not files_in(tmp_path, "gpusteward-bench-*")


def has_started(directory: Path) -> bool:
    return any("Starting benchmark" in log.read_text() for log in files_in(directory, "output.log"))


async def test_killed_server_fails_the_benchmark(tmp_path: Path) -> None:
    """genai-bench itself ends with exit 0 then, and an error rate of 0."""
    seen: list[Progress] = []
    with running_engine("llamacpp", {"threads": 1}, model=MODEL) as engine:
        running = asyncio.create_task(
            measured(engine.base_url, tmp_path, seen, max_requests_per_level=8)
        )
        await eventually(lambda: is_measuring(seen), within_seconds=SOON_SECONDS)
        answered = await tokens_predicted(engine.base_url)
        await eventually(lambda: another_answer(engine.base_url, answered))
        engine.process.kill()

        with pytest.raises(ServerGone) as gone:
            await running

    partly = gone.value.measured
    assert partly is not None
    assert partly.metrics.total_error_requests > 8
    assert "stopped answering after 1 of 1 levels" in str(gone.value)
    verdict = judge(partly)
    assert (verdict.outcome, verdict.benchmark) == (AttemptOutcome.FAILED, None)
    assert verdict.failure is not None
    assert verdict.failure.kind is FailureKind.BENCHMARK_FAILED
    assert processes_of(tmp_path) == []


async def tokens_predicted(base_url: str) -> float:
    """As the server counts them, whole answers at a time."""
    async with aiohttp.ClientSession() as session, session.get(f"{base_url}/metrics") as response:
        found = re.search(
            r"^llamacpp:tokens_predicted_total (\S+)$", await response.text(), re.MULTILINE
        )
    assert found is not None
    return float(found[1])


async def another_answer(base_url: str, before: float) -> bool:
    return await tokens_predicted(base_url) > before


async def test_failed_levels_are_kept_and_others_run(
    tmp_path: Path,
) -> None:
    """The tool gives up after such a level; the preflight has to pass before it."""
    engine = SimulatedEngine(
        Behaviour(model="m", ttft_seconds=0.01, tpot_seconds=0.001, slots=64, error_rate=0.0)
    )
    failing = Behaviour(model="m", ttft_seconds=0.01, tpot_seconds=0.001, slots=64, error_rate=1.0)
    seen: list[Progress] = []
    async with serving(engine.app()) as base_url:
        running = asyncio.create_task(
            measured(base_url, tmp_path, seen, model="m", num_concurrency=(1, 2))
        )
        await eventually(lambda: bool(files_in(tmp_path, "run-*")), within_seconds=SOON_SECONDS)
        engine.behaviour = failing
        result = await running

    assert [level.num_completed_requests for level in result.levels] == [0, 0]
    assert {level.error_rate for level in result.levels} == {1.0}
    assert all(level.error_codes_frequency.keys() == {"500"} for level in result.levels)
    assert result.simulated
    assert len(files_in(tmp_path, "run-*")) == 2
    verdict = judge(result)
    assert verdict.failure is not None
    assert verdict.failure.kind is FailureKind.BENCHMARK_FAILED
