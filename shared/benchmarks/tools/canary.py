"""A level of known truth for a load tool, on the host that will send the load, before a study."""

import asyncio
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from schemas.task.benchmark import BenchmarkResult, BenchmarkSpec, BenchmarkTool
from schemas.task.fingerprint import Canary
from shared.benchmarks.child_server import run_server
from shared.benchmarks.tools.adapter import Adapter, Target
from shared.errors import StewardError

TTFT_SECONDS: Final = 0.05
TPOT_SECONDS: Final = 0.01
KEPT_SECONDS: Final = 6 * 3600.0
LEVEL_SECONDS: Final = 60.0
MODEL: Final = "canary"
_SERVER: Final = "shared.engines.simulated.server"


@dataclass(slots=True)
class Canaries:
    """What this process found, by tool: a study's experiments share it for six hours."""

    _by_tool: dict[BenchmarkTool, tuple[float, Canary]] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def measure(self, adapter: Adapter, target: Target) -> Canary | None:
        """Return how far the tool is off the truth here; None where it gave no figure.

        `target` is what will be measured, for the tokenizer of its model.
        """
        async with self._lock:
            measured_at, canary = self._by_tool.get(adapter.label, (0.0, None))
            if canary is not None and time.monotonic() - measured_at < KEPT_SECONDS:
                return canary
            try:
                result = await _run(adapter, target)
            except StewardError:  # what it lacks, the study itself will say
                return None
            canary = read_canary(result)
            if canary is not None:
                self._by_tool[adapter.label] = time.monotonic(), canary
            return canary


def read_canary(result: BenchmarkResult) -> Canary | None:
    """Return the mean times of the level beside the true ones; None where any is missing."""
    stats = result.levels[0].stats if result.levels else None
    if stats is None or stats.ttft is None or stats.tpot is None:
        return None
    return Canary(
        true_ttft_seconds=TTFT_SECONDS,
        ttft_seconds=stats.ttft.mean,
        true_tpot_seconds=TPOT_SECONDS,
        tpot_seconds=stats.tpot.mean,
    )


async def _run(adapter: Adapter, target: Target) -> BenchmarkResult:
    """Raises BenchmarkFailed."""
    spec = BenchmarkSpec(
        tool=adapter.label,
        traffic_scenarios=("D(16,16)",),
        num_concurrency=(2,),
        max_requests_per_level=16,
        max_time_per_level_seconds=LEVEL_SECONDS,
    )
    times = (f"--ttft-seconds={TTFT_SECONDS}", f"--tpot-seconds={TPOT_SECONDS}")
    address = ("--alias", MODEL, "--host", "127.0.0.1", "--port", "0")
    with tempfile.TemporaryDirectory(prefix="gpusteward-canary-") as directory:
        async with run_server("the server of known times", _SERVER, *address, *times) as url:
            # The same tokenizer, and neither the key nor the certificate of the server.
            place = Target(
                base_url=url, model_name=MODEL, model=target.model, hub_token=target.hub_token
            )
            return await adapter.run(spec, place, directory=Path(directory))
