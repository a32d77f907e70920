"""Which tool benchmarks a task: one for all its experiments, or they could not be compared."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from schemas.task.benchmark import BenchmarkTool
from services.orchestrator.domain.installation.offers import Offer, name_nodes

# What `auto` may become, the liked first. Every executor has the last.
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


def choose_tool(requested: BenchmarkTool, serving: Sequence[Offer]) -> ToolChoice:
    """Return what the requested tool means on the executors that may run the task.

    A tool that is named stands. `auto` becomes the tool that most of them have, genai-bench if both
    are equally many; those without it are left out.
    """
    if requested is not BenchmarkTool.AUTO:
        return ToolChoice(tool=requested)
    having = {tool: [o.executor_id for o in serving if o.measures(tool)] for tool in AUTOMATIC}
    tool = max(AUTOMATIC, key=lambda candidate: len(having[candidate]))
    if not having[tool]:
        return ToolChoice(tool=None)
    return ToolChoice(tool=tool, note=_note(tool, having, serving))


def choose_for_all(requested: BenchmarkTool, servings: Sequence[Sequence[Offer]]) -> ToolChoice:
    """Return what it means for several engines, each with the executors that may run it.

    One tool that all of these engines can be measured with, or they could not be compared.
    """
    present = [serving for serving in servings if serving] or servings[:1]
    choices = [choose_tool(requested, serving) for serving in present]
    if len({choice.tool for choice in choices}) == 1:
        return choices[0]
    tool = next(
        (
            tool
            for tool in AUTOMATIC
            if all(any(offer.measures(tool) for offer in serving) for serving in present)
        ),
        choices[0].tool,
    )
    if tool is None:
        return choices[0]
    why = "as nodes of every engine have it"
    return ToolChoice(
        tool=tool,
        note=f"benchmark.tool is 'auto': '{tool.value}' loads every experiment, {why}",
    )


def _note(
    tool: BenchmarkTool, having: dict[BenchmarkTool, list[str]], serving: Sequence[Offer]
) -> str:
    choice = f"benchmark.tool is 'auto': '{tool.value}' generates the load of every experiment"
    if tool is BenchmarkTool.GENAI_BENCH:
        without = [o.executor_id for o in serving if o.executor_id not in having[tool]]
        return f"{choice}; without it and left out: {name_nodes(without)}" if without else choice
    better = having[BenchmarkTool.GENAI_BENCH]
    if not better:
        return f"{choice}, as no node of the task has 'genai-bench' ({INSTALL})"
    return (
        f"{choice}, as 'genai-bench' is on {len(better)} of {len(serving)} nodes only "
        f"({name_nodes(better)}); name that tool to run there alone"
    )
