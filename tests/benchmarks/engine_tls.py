"""What TLS to an engine costs a load: the same load over plain HTTP and over TLS, in turn.

`make bench NAME=engine_tls`. It reports and never fails a test. The engine is the simulated one
with fixed times, so what differs is the connection: the generator makes one for each request. The
last line is one JSON object: medians over the rounds, and TLS over plain as ratios.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool
from shared.benchmarks.tools.adapter import Target
from shared.benchmarks.tools.present import run_benchmark
from shared.tls.authority import make_own_pair
from tests.support.paths import ROOT

ROUNDS: Final = 5
REQUESTS_OF_EACH: Final = 16
CONCURRENCIES: Final = (1, 8, 32)
FIGURES: Final = ("ttft_p50_ms", "tpot_mean_ms", "requests_per_s")


@contextmanager
def engine(certificate: Path | None, key: Path | None) -> Iterator[Target]:
    tls = () if certificate is None else (f"--ssl-certfile={certificate}", f"--ssl-keyfile={key}")
    times = ("--ttft-seconds=0.05", "--tpot-seconds=0.01", "--slots=64")
    command = (sys.executable, "-m", "shared.engines.simulated.server", *times, *tls)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:  # ours
        if process.stdout is None:
            raise RuntimeError("a process without the pipe that was asked for")
        base_url = process.stdout.readline().rpartition(" ")[2].strip()
        try:
            yield Target(base_url=base_url, model_name="simulated", certificate=certificate)
        finally:
            process.kill()


def measure(target: Target, concurrency: int, directory: Path) -> dict[str, float]:
    spec = BenchmarkSpec(
        tool=BenchmarkTool.BUILTIN,
        traffic_scenarios=("D(100,20)",),
        num_concurrency=(concurrency,),
        max_requests_per_level=REQUESTS_OF_EACH * concurrency,
        max_time_per_level_seconds=60.0,
    )
    [level] = asyncio.run(run_benchmark(spec, target, directory=directory)).levels
    ttft, tpot = level.stats.ttft, level.stats.tpot
    if ttft is None or tpot is None:
        raise RuntimeError(f"no request was measured: {level.error_codes_frequency}")
    values = (1000 * ttft.p50, 1000 * tpot.mean, level.requests_per_second)
    return dict(zip(FIGURES, values, strict=True))


def main() -> None:
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        key, certificate = directory / "tls.key", directory / "tls.crt"
        pair = make_own_pair("engine", ["127.0.0.1"], timedelta(hours=1))
        for path, content in zip((key, certificate), pair, strict=True):
            path.write_bytes(content)
        with engine(None, None) as plain, engine(certificate, key) as tls:
            for concurrency in CONCURRENCIES:
                rounds = [
                    [measure(target, concurrency, directory) for target in (plain, tls)]
                    for _ in range(ROUNDS)
                ]
                row = found[f"concurrency_{concurrency}"] = {}
                for figure in FIGURES:
                    for place, what in enumerate(("plain", "tls")):
                        row[f"{what}_{figure}"] = statistics.median(
                            each[place][figure] for each in rounds
                        )
                    ratios = (after[figure] / before[figure] for before, after in rounds)
                    row[f"tls_over_plain_{figure}"] = statistics.median(ratios)
                print(concurrency, {name: round(value, 3) for name, value in row.items()})
    load = round(os.getloadavg()[0], 1)
    rounded = {
        name: {figure: round(value, 3) for figure, value in row.items()}
        for name, row in found.items()
    }
    print(json.dumps({"load_1m": load, **rounded}))


if __name__ == "__main__":
    main()
