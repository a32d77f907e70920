"""How a genai-bench process is watched and ended, with a stand-in that plays its output.

The stand-in is no tool: it writes the lines and files that genai-bench 0.0.5 was seen to write.
What the real one does is in test_genai_bench.py.
"""

import asyncio
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from schemas.task.benchmark import LevelResult
from shared.benchmarks.genai_bench.command import Batch
from shared.benchmarks.genai_bench.process import ToolProcess
from shared.benchmarks.tools.adapter import BenchmarkFailed, LoadPhase, Progress
from shared.testing import eventually
from tests.support.benchmark_tools import processes_of

STAND_IN = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
RESULTS = Path(sys.argv[1]) / "results"
RESULTS.mkdir()

def say(message, where="genai_bench.benchmark:benchmark", level="INFO"):
    print(f"{level:<8} 2026-11-21 10:48:51.%f - {where} - {message}", flush=True)

def start(concurrency):
    say(f"Starting benchmark with concurrency={concurrency}, spawn_rate={concurrency}")

def refuse():
    say("Received error response from server. Error code: 503, message: gone.", level="WARNING")

def result(concurrency, completed=4, errors=0, name=None, **overrides):
    aggregated = {
        "scenario": "D(8,4)", "num_concurrency": concurrency, "run_duration": 0.2,
        "error_codes_frequency": {"503": errors} if errors else {}, "error_rate": 0,
        "num_error_requests": errors, "num_completed_requests": completed, "stats": {},
    } | overrides
    text = json.dumps(
        {"aggregated_metrics": aggregated, "individual_request_metrics": [], "_time_unit": "s"},
        indent=4,
    )
    path = RESULTS / (name or f"D8_4_text-to-text_num_concurrency_{concurrency}_time_1s.json")
    with path.open("w") as file:
        file.write(text[:-30])
        file.flush()
        time.sleep(0.15)
        file.write(text[-30:])
"""


def make_process(
    directory: Path,
    play: str,
    *,
    concurrencies: tuple[int, ...] = (1, 2),
    seen: list[Progress] | None = None,
    secret: str | None = None,
) -> ToolProcess:
    script = directory / "stand_in.py"
    script.write_text(STAND_IN + play)
    return ToolProcess(
        argv=[sys.executable, str(script), str(directory)],
        env={"PATH": os.environ["PATH"]},
        directory=directory,
        batch=Batch(scenario="D(8,4)", concurrencies=concurrencies, first=3),
        levels_total=5,
        total=4,
        level_limit_seconds=60.0,
        secret=secret,
        on_progress=seen.append if seen is not None else None,
    )


async def test_levels_are_read_as_written(
    tmp_path: Path,
) -> None:
    seen: list[Progress] = []
    play = "start(1); result(1); start(2); refuse(); result(2, 3, 1)\ntime.sleep(60)"
    before = datetime.now(UTC)

    levels = await make_process(tmp_path, play, seen=seen).measure()

    assert [(level.num_concurrency, level.num_completed_requests) for level in levels] == [
        (1, 4),
        (2, 3),
    ]
    assert levels[1].error_rate == 0.25
    assert before <= levels[0].started_at <= levels[1].started_at <= datetime.now(UTC)
    assert levels[1].started_at - levels[0].started_at >= timedelta(seconds=0.14)
    assert [progress.level_no for progress in seen] == sorted(p.level_no for p in seen)
    assert {progress.level_no for progress in seen} == {3, 4}
    assert (seen[0].phase, seen[-1].phase) == (LoadPhase.WARMING_UP, LoadPhase.MEASURING)
    assert (seen[-1].completed, seen[-1].failed) == (3, 1)
    assert processes_of(tmp_path) == []


async def test_run_given_up_by_tool_is_a_failed_level(tmp_path: Path) -> None:
    """Its exit code is 1 then, and levels that follow are another process's."""
    play = (
        "start(1); result(1, 0, 0, 'debug_for_run_D8_4_1.json', run_duration=0.0,"
        " error_codes_frequency={'503': 645})\nsys.exit(1)"
    )
    process = make_process(tmp_path, play)

    levels = await process.measure()

    assert [(level.num_requests, level.error_rate) for level in levels] == [(645, 1.0)]
    assert levels[0].run_duration > 0


async def test_a_run_without_an_answer_is_a_failed_level(tmp_path: Path) -> None:
    """No file is written then, and the tool goes on with the next level."""
    play = (
        'start(1); say("No request metrics collected, one possible cause is", "x:y", "WARNING")\n'
        "start(2); result(2)\ntime.sleep(60)"
    )

    levels = await make_process(tmp_path, play).measure()

    assert [(level.num_concurrency, level.num_completed_requests) for level in levels] == [
        (1, 0),
        (2, 4),
    ]
    assert levels[0].error_codes_frequency == {"unanswered": 1}


async def test_tool_ending_early_tells_its_last_words(tmp_path: Path) -> None:
    play = "start(1); raise OSError('no connection to the hub')"

    with pytest.raises(BenchmarkFailed) as failed:
        await make_process(tmp_path, play).measure()

    assert "D(8,4) at concurrency 1" in str(failed.value)
    assert "exit 1" in str(failed.value)
    assert "OSError: no connection to the hub" in str(failed.value)


async def test_a_damaged_result_is_told(tmp_path: Path) -> None:
    play = "start(1); result(1, num_concurrency='many')\ntime.sleep(60)"

    with pytest.raises(BenchmarkFailed, match="expected a run of genai-bench"):
        await make_process(tmp_path, play).measure()

    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("times", [1, 2], ids=["cancelled", "cancelled again while it stops"])
async def test_a_cancelled_benchmark_leaves_no_process(tmp_path: Path, times: int) -> None:
    """Not even one that ignores to be asked, nor what it started."""
    play = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)', sys.argv[1]])\n"
        "start(1)\ntime.sleep(60)"
    )
    seen: list[Progress] = []
    process = make_process(tmp_path, play, seen=seen)
    measuring = asyncio.create_task(process.measure())
    await eventually(lambda: bool(seen) and seen[-1].phase is LoadPhase.MEASURING)
    assert len(processes_of(tmp_path)) == 2

    if times == 1:
        shortened = "shared.benchmarks.genai_bench.process.STOP_SECONDS"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shortened, 0.2)
            measuring.cancel()
            await asyncio.wait({measuring})
    else:
        measuring.cancel()
        await asyncio.sleep(0.05)
        measuring.cancel()
        await asyncio.wait({measuring})

    assert measuring.cancelled()
    assert processes_of(tmp_path) == []


async def test_key_written_by_the_tool_is_unreadable(tmp_path: Path) -> None:
    play = (
        "say('model_api_key: sk-secret')\n"
        "(RESULTS / 'experiment_metadata.json').write_text(json.dumps({'cmd': 'sk-secret'}))\n"
        "start(1); result(1)\ntime.sleep(60)"
    )
    process = make_process(tmp_path, play, concurrencies=(1,), secret="sk-secret")

    levels: list[LevelResult] = await process.measure()

    assert len(levels) == 1
    for path in (process.log_path, process.result_directory / "experiment_metadata.json"):
        assert "sk-secret" not in path.read_text()
        assert "*********" in path.read_text()
    assert json.loads(path.read_text()) == {"cmd": "*" * len("sk-secret")}
