"""Which tools there are, and which of them this host has."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from schemas.task.benchmark import BenchmarkResult, BenchmarkSpec, BenchmarkTool
from shared.benchmarks.aiperf.adapter import AIPerf
from shared.benchmarks.builtin.generator import Builtin
from shared.benchmarks.fingerprint import read_engine_facts, read_load_host
from shared.benchmarks.genai_bench.adapter import GenaiBench
from shared.benchmarks.tools.abilities import list_unserved
from shared.benchmarks.tools.adapter import (
    NO_FILES,
    Adapter,
    LoadFiles,
    ProgressCallback,
    Target,
)

ADAPTERS: Final[Mapping[BenchmarkTool, Adapter]] = {
    adapter.label: adapter for adapter in (GenaiBench(), Builtin(), AIPerf())
}


def list_installed_tools() -> tuple[BenchmarkTool, ...]:
    """Return the tools that this host can run now, in the order in which `auto` prefers them."""
    return tuple(label for label, adapter in ADAPTERS.items() if adapter.missing() is None)


def choose_tool(spec: BenchmarkSpec) -> BenchmarkTool:
    """Return the tool that runs here for the requested one; for `auto` the first that can."""
    if spec.tool is not BenchmarkTool.AUTO:
        return spec.tool
    able = (tool for tool in list_installed_tools() if not list_unserved(spec, tool))
    return next(able, BenchmarkTool.BUILTIN)


async def run_benchmark(
    spec: BenchmarkSpec,
    target: Target,
    *,
    directory: Path,
    on_progress: ProgressCallback | None = None,
    files: LoadFiles = NO_FILES,
) -> BenchmarkResult:
    """Run the benchmark with the tool that it names. Raises what `Adapter.run` does."""
    adapter = ADAPTERS[choose_tool(spec)]
    host = await asyncio.to_thread(read_load_host)
    engine = await read_engine_facts(target)
    result = await adapter.run(
        spec, target, directory=directory, on_progress=on_progress, files=files
    )
    return replace(result, load_host=host, engine=engine)
