"""Which tools there are, and which of them this host has."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from schemas.task.benchmark import BenchmarkResult, BenchmarkSpec, BenchmarkTool
from shared.benchmarks.aiperf.adapter import AIPerf
from shared.benchmarks.builtin.generator import Builtin
from shared.benchmarks.genai_bench.adapter import GenaiBench
from shared.benchmarks.tools.adapter import Adapter, ProgressCallback, Target

ADAPTERS: Final[Mapping[BenchmarkTool, Adapter]] = {
    adapter.label: adapter for adapter in (GenaiBench(), Builtin(), AIPerf())
}


def installed_tools() -> tuple[BenchmarkTool, ...]:
    """What this host can run now, in the order in which `auto` prefers them."""
    return tuple(label for label, adapter in ADAPTERS.items() if adapter.missing() is None)


def chosen_tool(wanted: BenchmarkTool) -> BenchmarkTool:
    """What `wanted` means on this host."""
    return installed_tools()[0] if wanted is BenchmarkTool.AUTO else wanted


async def run_benchmark(
    spec: BenchmarkSpec,
    target: Target,
    *,
    directory: Path,
    on_progress: ProgressCallback | None = None,
) -> BenchmarkResult:
    """Run the benchmark with the tool that it names. Raises what `Adapter.run` does."""
    adapter = ADAPTERS[chosen_tool(spec.tool)]
    return await adapter.run(spec, target, directory=directory, on_progress=on_progress)
