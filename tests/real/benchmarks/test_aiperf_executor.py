"""The real AIPerf under an executor, on the real llama.cpp server."""

from pathlib import Path

import pytest

from schemas.executor.attempts import AttemptOutcome, AttemptPhase
from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool
from services.executor.app import create_service
from shared.benchmarks.aiperf.installation import AIPERF
from shared.testing import eventually
from tests.support.benchmark_tools import processes_of, require_tool
from tests.support.worlds.executor import make_settings, make_start, phases_of, scheduling

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
LONG_SECONDS = 180.0
BENCHMARK = BenchmarkSpec(
    traffic_scenarios=("D(32,8)",),
    max_requests_per_level=4,
    max_time_per_level_seconds=60.0,
    tool=BenchmarkTool.AIPERF,
)


@pytest.fixture(autouse=True)
def aiperf(monkeypatch: pytest.MonkeyPatch) -> Path:
    return require_tool(AIPERF, monkeypatch)


async def test_aiperf_measures_where_requested(nats_url: str, tmp_path: Path) -> None:
    settings = make_settings(nats_url, tmp_path)
    start = make_start(
        {"threads": 1},
        engine="llamacpp",
        model="smollm2-135m",
        benchmark=BENCHMARK,
        timeout_seconds=200.0,
    )
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await eventually(lambda: bool(scheduler.reports))
        await scheduler.ask(start)
        finished = await scheduler.finished(start, within_seconds=LONG_SECONDS)
        facts = await scheduler.facts(start)

    assert finished.outcome is AttemptOutcome.SUCCEEDED, finished.failure
    assert BenchmarkTool.AIPERF in scheduler.reports[0].benchmark_tools
    assert finished.benchmark is not None
    assert finished.benchmark.tool is BenchmarkTool.AIPERF
    assert not finished.benchmark.simulated
    [level], [window] = finished.benchmark.levels, finished.windows
    assert (level.num_completed_requests, level.num_error_requests) == (4, 0)
    assert finished.started_at <= window.started_at <= window.finished_at <= finished.finished_at
    assert phases_of(facts) == [
        AttemptPhase.LOADING,
        AttemptPhase.WARMING_UP,
        AttemptPhase.MEASURING,
        AttemptPhase.DRAINING,
        AttemptPhase.TEARING_DOWN,
    ]
    assert scheduler.progress[-1].fraction == 1.0
    assert processes_of(tmp_path) == []
