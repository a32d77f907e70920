"""What makes load, and what serves models."""

import importlib.util
import re
from collections.abc import Mapping
from typing import Final

from schemas.task.benchmark import BenchmarkTool
from services.cli.doctor.check import CheckResult, Probe, missing, ok
from services.cli.doctor.host_facts import HostFacts
from services.cli.extras import install_command
from shared.benchmarks.aiperf.installation import AIPERF
from shared.benchmarks.genai_bench.installation import GENAI_BENCH
from shared.benchmarks.tools.environment import Tool
from shared.engines.llamacpp.weights import DEMO_MODEL, WeightsMissing, locate_weights
from shared.engines.table import PROFILES

# In the order of ADAPTERS, which themselves would take half a second to import.
TOOLS: Final[Mapping[BenchmarkTool, Tool | None]] = {
    BenchmarkTool.GENAI_BENCH: GENAI_BENCH,
    BenchmarkTool.BUILTIN: None,  # comes with the platform
    BenchmarkTool.AIPERF: AIPERF,
}


def _tool(label: BenchmarkTool, tool: Tool | None) -> Probe:
    def inspect(_: HostFacts) -> CheckResult:
        absent = tool.what_is_missing() if tool is not None else None
        return ok("can be run") if absent is None else missing(absent, _fix_in(absent))

    return Probe(
        name=label.value.replace("_", "-"), why="a tool that measures engines", inspect=inspect
    )


def _fix_in(absent: str) -> str:
    """The command that the adapter's words name."""
    quoted = re.findall(r"`([^`]+)`", absent)
    _, _, command = absent.rpartition("run: ")
    return f"`{quoted[-1] if quoted else command}`"


def built_in_engine(_: HostFacts) -> CheckResult:
    if importlib.util.find_spec("xllamacpp") is None:
        return missing("llama.cpp is not installed", f"`{install_command('demo')}`")
    try:
        locate_weights(DEMO_MODEL)
    except WeightsMissing:
        return missing(f"{DEMO_MODEL} is not installed", "`gpusteward demo` downloads it")
    return ok("llama.cpp and the model of the demo")


def other_engines(facts: HostFacts) -> CheckResult:
    needs = {
        p.title: p.requirement for p in PROFILES.values() if p.server is None and p.requirement
    }
    places = []
    for title, need in needs.items():
        if need.program is not None and (path := facts.program(need.program)):
            places.append(f"{title} at {path}")
        if need.module is not None and importlib.util.find_spec(need.module) is not None:
            places.append(title)
    if places:
        return ok(", ".join(places))
    return missing(
        f"none of {', '.join(needs)} is a program of this host",
        "`pip install vllm`, or run them as containers: mode docker needs neither",
    )


def probes() -> tuple[Probe, ...]:
    return (
        *(_tool(label, tool) for label, tool in TOOLS.items()),
        Probe(
            name="llamacpp",
            why="`gpusteward demo` serves a real model by it",
            inspect=built_in_engine,
        ),
        Probe(
            name="engines", why="engines of process tasks are programs here", inspect=other_engines
        ),
    )
