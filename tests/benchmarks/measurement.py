"""How far what the built-in load generator measures is from the truth, and what it can take.

`make bench NAME=measurement`. It reports and never fails a test. The engine is the simulated one's
batching, whose true times follow from its rules (`tests/support/known_servers/batch_truth.py`). The
last line is one JSON object:

`p99_error_percent`: largest difference of the p99 of ttft and e2e from the truth over levels from
idle to saturation, closed and open, in virtual time: what the method adds.
`p99_error_wall_percent`: the same over HTTP from another process on this machine, timed arrivals:
what machine and client add. `contamination_caught_percent`: of runs that the prefix cache of the
run before had served, those that were set aside. `client_ceiling_tokens_per_s`: streamed tokens
that one process takes from a server that computes nothing, which on few processors takes its share
of them; `client_ceiling_by_processes` the same by processes. `bound_right_percent`: scripted levels
whose bound was named right; what would help is asked of the engine's rules.
`second_start_over_first`: processor time from its start until an engine is ready that computes 5 s
to compile, with what another compiled before it, over that without; the median of three. Of the
time that passes, what else the machine does is a part, and the same in both.
"""

import asyncio
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from schemas.task.benchmark import BenchmarkResult, BenchmarkSpec, Distribution, LevelResult
from services.executor.engines.compile_cache import CacheKey, CompileCaches, cache_variables
from services.executor.engines.engine_table import build_command
from shared.benchmarks.builtin.client_ceiling import ceiling_tokens_per_s
from shared.benchmarks.builtin.generator import run_benchmark
from shared.benchmarks.metrics import distribution
from shared.engines.simulated.batch import BatchSpeed
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from tests.support.http_server import serving
from tests.support.known_servers.batch_truth import TrueTimes, open_loop
from tests.support.known_servers.bound_cases import cases, disturbed, named_of, truth_of
from tests.support.known_servers.known_engine import (
    SIZE,
    SPEED,
    TRAVEL_SECONDS,
    VARIED,
    make_spec,
    measure,
    varied_closed_loop,
)
from tests.support.processes.inference_engine import running_engine

CLIENTS: Final = (1, 2, 4, 8, 16, 32)
RATES_PER_S: Final = (2, 15, 30, 45)
WALL_STEP_SECONDS: Final = 0.02
WALL_REQUESTS: Final = 60
COMPILE_SECONDS: Final = 5.0
STARTS: Final = 3
PIECES: Final = 8
CLIENT_PROCESSES: Final = (1, 2, 4)


def p99_error_percent() -> float:
    errors = []
    for clients in CLIENTS:
        truth = varied_closed_loop(clients)
        level = measure(
            make_spec(
                traffic_scenarios=(VARIED,), num_concurrency=(clients,), max_requests_per_level=1500
            )
        )
        errors.append(_error(level, truth))
        print(f"closed({clients}): {errors[-1]:.2f} %", flush=True)
    for kind in ("poisson({})", "constant({})", "burst({},4)"):
        for rate in RATES_PER_S:
            sent: list[float] = []
            level = measure(make_spec(arrivals=(kind.format(rate),)), sent)
            truth = open_loop(SPEED, SIZE, sent, TRAVEL_SECONDS)
            measured = sorted(truth, key=lambda each: each.sent)[1:301]
            errors.append(_error(level, measured))
            print(f"{kind.format(rate)}: {errors[-1]:.2f} %", flush=True)
    return max(errors)


def p99_error_wall_percent() -> float:
    """Constant arrivals, so that the truth needs no word of the client."""
    errors = []
    speed = BatchSpeed(step_seconds=WALL_STEP_SECONDS)
    parameters = {"step-seconds": WALL_STEP_SECONDS, "slots": speed.slots}
    with running_engine("simulated", parameters, model="m") as engine:
        for rate in (2, 8):
            spec = BenchmarkSpec(
                traffic_scenarios=("D(16,20)",),
                arrivals=(f"constant({rate})",),
                max_requests_per_level=WALL_REQUESTS,
            )
            level = asyncio.run(_run(engine.base_url, spec)).levels[0]
            truth = open_loop(speed, (16, 20), [n / rate for n in range(WALL_REQUESTS)], 0)
            errors.append(_error(level, truth))
            marks = ", ".join(level.marks) or "no marks"
            print(f"over HTTP, constant({rate}): {errors[-1]:.2f} %, {marks}", flush=True)
    return max(errors)


def contamination_caught_percent() -> float:
    return asyncio.run(_contamination())


async def _contamination() -> float:
    caught = []
    spec = BenchmarkSpec(traffic_scenarios=("D(200,2)",), max_requests_per_level=6)
    for dialect in ("vllm", "sglang"):
        for cache_reset in ("ignored", "absent"):
            behaviour = Behaviour(
                model="m",
                step_seconds=0.001,
                prefix_cache=True,
                dialect=dialect,
                cache_reset=cache_reset,
            )
            async with serving(SimulatedEngine(behaviour).app()) as base_url:
                for _ in range(3):
                    await _run(base_url, spec, seed=1)
                    again = await _run(base_url, spec, seed=1)
                    caught.append(again.levels[0].set_aside is not None)
    return 100 * sum(caught) / len(caught)


def second_start_over_first() -> float:
    ratios = []
    for _ in range(STARTS):
        with tempfile.TemporaryDirectory() as root:
            caches = CompileCaches(root=Path(root), max_bytes=2**30, max_age_seconds=3600.0)
            first, second = (_start_of(caches) for _ in range(2))
        ratios.append(second.processor_seconds / first.processor_seconds)
        print(f"starts: {first}, {second}", flush=True)
    return statistics.median(ratios)


@dataclass(frozen=True, slots=True)
class Start:
    processor_seconds: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.processor_seconds:.2f} s of processor ({self.seconds:.2f} s)"


def _start_of(caches: CompileCaches) -> Start:
    cache = caches.take(CacheKey("bench", "simulated", "", (), ""))
    if cache is None:
        raise RuntimeError(f"no cache below {caches.root}")
    # Nothing else of ours ends meanwhile, so what ended children took is the engine's.
    before, began = _processor_seconds_of_children(), time.perf_counter()
    _start(cache_variables(str(cache.files)))
    seconds = time.perf_counter() - began
    cache.release(is_good=True)
    return Start(_processor_seconds_of_children() - before, seconds)


def _processor_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _start(environment: Mapping[str, str]) -> None:
    """Until it is ready; then it is ended."""
    parameters = {"start-compile-seconds": COMPILE_SECONDS}
    argv = build_command("simulated", "m", parameters, port=0).argv
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        try:
            for line in process.stdout or ():
                if line.startswith("listening on"):
                    return
        finally:
            process.kill()
    raise RuntimeError("the engine ended before it was ready")


def client_ceiling_tokens_per_s() -> dict[int, int]:
    """By processes of the client; the best of three."""
    found = {}
    for count in CLIENT_PROCESSES:
        rates = [asyncio.run(ceiling_tokens_per_s(count, PIECES)) for _ in range(3)]
        found[count] = round(max(rates))
        print(f"ceiling of {count}: {found[count]} tokens/s", flush=True)
    return found


def bound_right_percent() -> float:
    found = [(case.name, truth_of(case), named_of(case)) for case in cases()]
    found += [("disturbed", truth, named) for truth, named in disturbed()]
    for name, truth, named in found:
        print(f"bound of {name}: {truth}, named {named}", flush=True)
    return 100 * sum(truth is named for _, truth, named in found) / len(found)


async def _run(base_url: str, spec: BenchmarkSpec, **options: Any) -> BenchmarkResult:  # passed on
    return await run_benchmark(spec, base_url=base_url, model_name="m", **options)


def _error(level: LevelResult, truth: Sequence[TrueTimes]) -> float:
    """Of the p99 of ttft or e2e, whichever is further off, in percent."""
    pairs = (
        (level.stats.ttft, [each.ttft for each in truth]),
        (level.stats.e2e_latency, [each.e2e for each in truth]),
    )
    return max(100 * abs(_p99(got) / _p99(distribution(want)) - 1) for got, want in pairs)


def _p99(spread: Distribution | None) -> float:
    if spread is None:
        raise RuntimeError("a level gave no request")
    return spread.p99


def main() -> None:
    ceilings = client_ceiling_tokens_per_s()
    found = {
        "p99_error_percent": round(p99_error_percent(), 2),
        "p99_error_wall_percent": round(p99_error_wall_percent(), 2),
        "contamination_caught_percent": round(contamination_caught_percent(), 1),
        "client_ceiling_tokens_per_s": ceilings[1],
        "client_ceiling_by_processes": ceilings,
        "bound_right_percent": round(bound_right_percent(), 1),
        "second_start_over_first": round(second_start_over_first(), 3),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
