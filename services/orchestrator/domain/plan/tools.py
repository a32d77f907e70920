"""Which tool benchmarks a task: one for all its experiments, or they could not be compared."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from schemas.task.benchmark import BenchmarkTool
from services.orchestrator.domain.plan.executor_offers import Offer, named

# What `auto` may become, the liked first. Executors of every release have the last.
AUTOMATIC: Final = (BenchmarkTool.GENAI_BENCH, BenchmarkTool.BUILTIN)
INSTALL: Final = "`gpusteward bench install` installs it"
INSTALL_HINTS: Final = {
    BenchmarkTool.GENAI_BENCH: INSTALL,
    BenchmarkTool.AIPERF: "`gpusteward bench install aiperf` installs it",
}


class ToolChoice(Struct, frozen=True, kw_only=True):
    """The tool, None if there is none to choose, and why it was chosen, for a note."""

    tool: BenchmarkTool | None
    note: str = ""


def choose_tool(wanted: BenchmarkTool, serving: Sequence[Offer]) -> ToolChoice:
    """What `wanted` means on the executors that may run the task.

    A tool that is named stands. `auto` becomes the tool that most of them have, genai-bench if
    both are equally many; those without it are left out.
    """
    if wanted is not BenchmarkTool.AUTO:
        return ToolChoice(tool=wanted)
    having = {tool: [o.executor_id for o in serving if o.measures(tool)] for tool in AUTOMATIC}
    tool = max(AUTOMATIC, key=lambda candidate: len(having[candidate]))
    if not having[tool]:
        return ToolChoice(tool=None)
    return ToolChoice(tool=tool, note=_note(tool, having, serving))


def tool_of_old(
    wanted: BenchmarkTool, serving: Sequence[Offer], *, has_started: bool
) -> ToolChoice:
    """The tool of a task that was stored without one, by a release that knew builtin alone.

    `has_started`: an attempt of it was, so what it has measured was measured with that.
    """
    if wanted is BenchmarkTool.AUTO and has_started:
        note = "benchmark.tool is 'auto': 'builtin' generates the load, as it did from the start"
        return ToolChoice(tool=BenchmarkTool.BUILTIN, note=note)
    choice = choose_tool(wanted, serving)
    return choice if choice.tool is not None else ToolChoice(tool=BenchmarkTool.BUILTIN)


def _note(
    tool: BenchmarkTool, having: dict[BenchmarkTool, list[str]], serving: Sequence[Offer]
) -> str:
    choice = f"benchmark.tool is 'auto': '{tool.value}' generates the load of every experiment"
    if tool is BenchmarkTool.GENAI_BENCH:
        without = [o.executor_id for o in serving if o.executor_id not in having[tool]]
        return f"{choice}; without it and left out: {named(without)}" if without else choice
    better = having[BenchmarkTool.GENAI_BENCH]
    if not better:
        return f"{choice}, as no node of the task has 'genai-bench' ({INSTALL})"
    return (
        f"{choice}, as 'genai-bench' is on {len(better)} of {len(serving)} nodes only "
        f"({named(better)}); name that tool to run there alone"
    )
