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


def list_installed_tools() -> tuple[BenchmarkTool, ...]:
    """Return the tools that this host can run now, in the order in which `auto` prefers them."""
    return tuple(label for label, adapter in ADAPTERS.items() if adapter.missing() is None)


def chosen_tool(requested: BenchmarkTool) -> BenchmarkTool:
    """Return the tool that runs here for the requested one, which may be `auto`."""
    return list_installed_tools()[0] if requested is BenchmarkTool.AUTO else requested


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
