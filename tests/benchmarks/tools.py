"""What each benchmark tool says of one engine whose true times are known.

`make bench NAME=tools`. It reports and never fails a test. Needs genai-bench and AIPerf. The engine
is the simulated one with fixed times, so that in a closed loop of no more requests than it has
slots all figures follow from them. The last line is one JSON object: `truth`, each tool's figures,
and `aiperf_itself`, what AIPerf writes as its own aggregates of the run that the line `aiperf` is
of.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool, LevelResult
from shared.benchmarks.tools.adapter import Target
from shared.benchmarks.tools.present import ADAPTERS, run_benchmark
from shared.paths import TOOLS_VARIABLE
from tests.support.benchmark_tools import TEST_TOOLS
from tests.support.processes.inference_engine import running_engine

TTFT_SECONDS: Final = 0.2
TPOT_SECONDS: Final = 0.04
CLIENTS: Final = 4
SLOTS: Final = 8
INPUT_TOKENS: Final = 100
OUTPUT_TOKENS: Final = 25
REQUESTS: Final = 100
E2E_SECONDS: Final = TTFT_SECONDS + (OUTPUT_TOKENS - 1) * TPOT_SECONDS
TRUTH: Final = {
    "ttft_p50_ms": 1000 * TTFT_SECONDS,
    "ttft_p99_ms": 1000 * TTFT_SECONDS,
    "tpot_mean_ms": 1000 * TPOT_SECONDS,
    "e2e_p50_ms": 1000 * E2E_SECONDS,
    "e2e_p99_ms": 1000 * E2E_SECONDS,
    "requests_per_s": CLIENTS / E2E_SECONDS,
    "output_tokens_per_s": CLIENTS * OUTPUT_TOKENS / E2E_SECONDS,
}


def figures_of(level: LevelResult) -> dict[str, float]:
    """What a result shows of its level."""
    ttft, tpot, e2e = level.stats.ttft, level.stats.tpot, level.stats.e2e_latency
    if ttft is None or tpot is None or e2e is None:
        raise RuntimeError(f"no request was measured: {level.error_codes_frequency}")
    return {
        "ttft_p50_ms": 1000 * ttft.p50,
        "ttft_p99_ms": 1000 * ttft.p99,
        "tpot_mean_ms": 1000 * tpot.mean,
        "e2e_p50_ms": 1000 * e2e.p50,
        "e2e_p99_ms": 1000 * e2e.p99,
        "requests_per_s": level.requests_per_second,
        "output_tokens_per_s": level.mean_output_throughput_tokens_per_s or 0.0,
        "requests": level.num_requests,
    }


def aiperf_itself(directory: Path) -> dict[str, float]:
    """The aggregates that AIPerf writes, which the platform does not read."""
    [path] = directory.glob("level-*/profile_export_aiperf.json")
    told: dict[str, Any] = json.loads(path.read_bytes())
    return {
        "ttft_p50_ms": told["time_to_first_token"]["p50"],
        "ttft_p99_ms": told["time_to_first_token"]["p99"],
        "tpot_mean_ms": told["inter_token_latency"]["avg"],
        "e2e_p50_ms": told["request_latency"]["p50"],
        "e2e_p99_ms": told["request_latency"]["p99"],
        "requests_per_s": told["request_throughput"]["avg"],
        "output_tokens_per_s": told["output_token_throughput"]["avg"],
        "requests": told["request_count"]["avg"],
    }


async def measured(tool: BenchmarkTool, target: Target, directory: Path) -> dict[str, float]:
    spec = BenchmarkSpec(
        tool=tool,
        traffic_scenarios=(f"D({INPUT_TOKENS},{OUTPUT_TOKENS})",),
        num_concurrency=(CLIENTS,),
        max_requests_per_level=REQUESTS,
        max_time_per_level_seconds=120.0,
    )
    began = time.perf_counter()
    [level] = (await run_benchmark(spec, target, directory=directory)).levels
    return figures_of(level) | {"whole_s": time.perf_counter() - began}


def main() -> None:
    """Measure with each tool in turn and print; exit code 1 where one is not installed."""
    os.environ[TOOLS_VARIABLE] = str(TEST_TOOLS)
    missing = [reason for adapter in ADAPTERS.values() if (reason := adapter.missing())]
    if missing:
        print("\n".join(missing), file=sys.stderr)
        sys.exit(1)
    found: dict[str, dict[str, float]] = {"truth": dict(TRUTH)}
    times = {"ttft_seconds": TTFT_SECONDS, "tpot_seconds": TPOT_SECONDS, "slots": SLOTS}
    with (
        tempfile.TemporaryDirectory() as directory,
        running_engine("simulated", times, model="simulated") as engine,
    ):
        target = Target(base_url=engine.base_url, model_name=engine.model)
        for tool in ADAPTERS:
            own = Path(directory) / tool.value
            found[tool.value] = asyncio.run(measured(tool, target, own))
            if tool is BenchmarkTool.AIPERF:
                found["aiperf_itself"] = aiperf_itself(own)
    for name in ("", *found):
        cells = [*TRUTH] if not name else [f"{found[name][key]:.1f}" for key in TRUTH]
        print(f"{name:14}" + "".join(f"{cell:>20}" for cell in cells))
    print(
        json.dumps(
            {
                name: {key: round(value, 2) for key, value in figures.items()}
                for name, figures in found.items()
            }
        )
    )


if __name__ == "__main__":
    main()
