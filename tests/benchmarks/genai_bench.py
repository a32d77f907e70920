"""What driving genai-bench costs beside the runs that it measures.

`make bench NAME=genai_bench`. It reports and never fails a test. Needs the demo engine and an
installed genai-bench (`gpusteward bench install`). The last line is one JSON object:
`genai_bench_overhead_s` is the median of our wall time, from the call to the result, without the
sum of the tool's own run durations: preflight, warm-up, its imports of 6 to 10 s, a pause of 1 s
after each level, and stopping it. `genai_bench_whole_s` is what the same command takes by itself to
its end, plots included, without those durations as well.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool
from shared.benchmarks.genai_bench.command import arguments, batches, environment
from shared.benchmarks.genai_bench.installation import GENAI_BENCH
from shared.benchmarks.genai_bench.results import Observed, read_run
from shared.benchmarks.tools.adapter import Target
from shared.benchmarks.tools.present import run_benchmark
from shared.clock import utcnow
from shared.paths import TOOLS_VARIABLE
from tests.support.benchmark_tools import TEST_TOOLS
from tests.support.processes.inference_engine import running_engine

ROUNDS: Final = 3
MODEL: Final = "smollm2-135m"
SPEC: Final = BenchmarkSpec(
    traffic_scenarios=("D(32,8)",),
    num_concurrency=(1, 2),
    max_requests_per_level=4,
    max_time_per_level_seconds=60.0,
    tool=BenchmarkTool.GENAI_BENCH,
)


def overhead_s(rounds: int = ROUNDS) -> float | None:
    """Median of wall time without the measured runs; None where genai-bench is not installed."""
    with (
        _tool(),
        running_engine("llamacpp", {"threads": 1, "parallel": 2}, model=MODEL) as engine,
    ):
        if GENAI_BENCH.find_program() is None:
            return None
        target = Target(base_url=engine.base_url, model_name=MODEL)
        return statistics.median(asyncio.run(_round(target)) for _ in range(rounds))


async def _round(target: Target) -> float:
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        result = await run_benchmark(SPEC, target, directory=Path(directory))
        wall_seconds = time.perf_counter() - began
    measured_seconds = sum(level.run_duration for level in result.levels)
    print(f"{wall_seconds:6.2f} s for {measured_seconds:5.2f} s of runs", file=sys.stderr)
    return wall_seconds - measured_seconds


def whole_s() -> float:
    """What genai-bench takes by itself, to its end, without its runs."""
    with (
        _tool(),
        running_engine("llamacpp", {"threads": 1, "parallel": 2}, model=MODEL) as engine,
        tempfile.TemporaryDirectory() as directory,
    ):
        target = Target(base_url=engine.base_url, model_name=MODEL)
        # Once through us, for a tokenizer to hand it.
        asyncio.run(run_benchmark(SPEC, target, directory=Path(directory)))
        results = Path(directory) / "alone"
        argv = arguments(
            [str(GENAI_BENCH.find_program())],
            SPEC,
            target,
            batches(SPEC)[0],
            tokenizer=str(Path(directory) / "tokenizer"),
            owned_by=None,
            directory=results,
            log_directory=Path(directory),
        )
        began = time.perf_counter()
        env = environment(os.environ, target, is_tokenizer_local=True)
        subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        wall_seconds = time.perf_counter() - began
        observed = Observed(started_at=utcnow(), seconds=wall_seconds)
        runs = [read_run(path.read_bytes(), observed) for path in results.glob("*_time_*.json")]
        return wall_seconds - sum(run.run_duration for run in runs)


@contextmanager
def _tool() -> Iterator[None]:
    """Have the tool found while this is entered, as tests leave it out of the environment."""
    os.environ[TOOLS_VARIABLE] = str(TEST_TOOLS)
    try:
        yield
    finally:
        del os.environ[TOOLS_VARIABLE]


def main() -> None:
    """Measure and print; exit code 1 where genai-bench is not installed."""
    found = overhead_s()
    if found is None:
        print(f"genai-bench is not installed in {TEST_TOOLS}", file=sys.stderr)
        sys.exit(1)
    alone = whole_s()
    figures = {"genai_bench_overhead_s": found, "genai_bench_whole_s": alone}
    print(json.dumps({name: round(value, 2) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
