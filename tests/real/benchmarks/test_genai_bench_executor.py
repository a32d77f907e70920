"""The real genai-bench under an executor, on the real llama.cpp server."""

import os
import signal
from pathlib import Path

import pytest

from schemas.executor.attempts import AttemptOutcome, AttemptPhase, FailureKind
from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool
from services.executor.app import create_service
from shared.testing import eventually
from tests.support.benchmark_tools import processes_of, require_genai_bench
from tests.support.worlds.executor import (
    Scheduler,
    make_cancel,
    make_settings,
    make_start,
    phases_of,
    scheduling,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
MODEL = "smollm2-135m"
LONG_SECONDS = 120.0
BENCHMARK = BenchmarkSpec(
    traffic_scenarios=("D(32,8)",),
    num_concurrency=(1, 2),
    max_requests_per_level=4,
    max_time_per_level_seconds=60.0,
    warmup_requests=1,
    tool=BenchmarkTool.AUTO,
)
ENDLESS = BenchmarkSpec(
    traffic_scenarios=("D(32,8)",),
    max_requests_per_level=100_000,
    max_time_per_level_seconds=600.0,
    tool=BenchmarkTool.GENAI_BENCH,
)


@pytest.fixture(autouse=True)
def genai_bench(monkeypatch: pytest.MonkeyPatch) -> Path:
    return require_genai_bench(monkeypatch)


async def test_auto_measures_with_the_preferred_tool(nats_url: str, tmp_path: Path) -> None:
    settings = make_settings(nats_url, tmp_path)
    start = make_start(
        {"threads": 1}, engine="llamacpp", model=MODEL, benchmark=BENCHMARK, timeout_seconds=150.0
    )
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await eventually(lambda: bool(scheduler.reports))
        await scheduler.ask(start)
        finished = await scheduler.finished(start, within_seconds=LONG_SECONDS)
        facts = await scheduler.facts(start)

    assert finished.outcome is AttemptOutcome.SUCCEEDED, finished.failure
    assert scheduler.reports[0].benchmark_tools[:2] == ("genai-bench", "builtin")
    assert finished.benchmark is not None
    assert finished.benchmark.tool is BenchmarkTool.GENAI_BENCH
    assert not finished.benchmark.simulated
    assert [level.num_concurrency for level in finished.benchmark.levels] == [1, 2]
    assert finished.started_at <= finished.windows[0].started_at
    assert finished.windows[0].finished_at <= finished.windows[1].started_at
    assert finished.windows[1].finished_at <= finished.finished_at
    phases = phases_of(facts)
    assert phases == [
        AttemptPhase.LOADING,
        AttemptPhase.WARMING_UP,
        AttemptPhase.MEASURING,
        AttemptPhase.DRAINING,
        AttemptPhase.TEARING_DOWN,
    ]
    assert scheduler.progress[-1].fraction == 1.0
    fractions = [told.fraction for told in scheduler.progress]
    assert any(0 < fraction < 0.5 for fraction in fractions)
    assert processes_of(tmp_path) == []


async def until_measuring(scheduler: Scheduler, tmp_path: Path) -> None:
    await eventually(
        lambda: any(told.phase is AttemptPhase.MEASURING for told in scheduler.progress),
        within_seconds=LONG_SECONDS,
    )
    assert len(processes_of(tmp_path)) >= 1


@pytest.mark.parametrize("how", ["engine killed", "cancelled"])
async def test_experiment_ending_early_leaves_no_tool(
    nats_url: str, tmp_path: Path, how: str
) -> None:
    settings = make_settings(nats_url, tmp_path)
    start = make_start(
        {"threads": 1}, engine="llamacpp", model=MODEL, benchmark=ENDLESS, timeout_seconds=150.0
    )
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await scheduler.ask(start)
        await until_measuring(scheduler, tmp_path)
        if how == "cancelled":
            await scheduler.ask(make_cancel(start))
        else:
            for pid in scheduler.pids(start.reservation_id):
                os.kill(pid, signal.SIGKILL)
        finished = await scheduler.finished(start)

        assert processes_of(tmp_path) == []
    assert finished.failure is not None
    if how == "cancelled":
        assert finished.outcome is AttemptOutcome.CANCELLED
    else:
        assert finished.outcome is AttemptOutcome.FAILED
        assert finished.failure.kind is FailureKind.ENGINE_EXITED
