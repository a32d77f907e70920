"""One tool for a whole task, whatever the nodes have."""

import itertools

import pytest

from schemas.task.benchmark import BenchmarkTool
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.installation.offers import Offer
from services.orchestrator.domain.installation.tools import choose_tool
from shared.engines.variants import SINGLE
from tests.support.worlds.orchestrator_records import make_file, make_offer, make_plan

BOTH = ("genai-bench", "builtin")
AUTO, GENAI, BUILTIN = BenchmarkTool.AUTO, BenchmarkTool.GENAI_BENCH, BenchmarkTool.BUILTIN


def nodes(*tools: tuple[str, ...]) -> list[Offer]:
    return [make_offer(f"n{n}", tools=those) for n, those in enumerate(tools, start=1)]


@pytest.mark.parametrize(
    ("offers", "want", "says"),
    [
        pytest.param(nodes(BOTH, BOTH), GENAI, "every experiment", id="all have the liked one"),
        pytest.param(nodes(("builtin",)), BUILTIN, "no node of the task has", id="none has it"),
        pytest.param(
            nodes(BOTH, ("builtin",), ("builtin",)), BUILTIN, "on 1 of 3 nodes only (n1)", id="some"
        ),
        pytest.param(
            nodes(("genai-bench",), BOTH, ("builtin",)), GENAI, "left out: n3", id="equally many"
        ),
        pytest.param(nodes(()), None, "", id="no tool at all"),
        pytest.param([], None, "", id="no node"),
    ],
)
def test_auto_becomes_the_tool_of_most_nodes(
    offers: list[Offer], want: BenchmarkTool | None, says: str
) -> None:
    choice = choose_tool(AUTO, offers)

    assert choice.tool is want
    assert says in choice.note
    assert bool(choice.note) == (want is not None)


@pytest.mark.parametrize("wanted", [GENAI, BUILTIN, BenchmarkTool.AIPERF])
def test_a_tool_that_is_named_stands(wanted: BenchmarkTool) -> None:
    assert choose_tool(wanted, nodes(("builtin",))).tool is wanted


def test_no_mixture_of_nodes_mixes_tools() -> None:
    """Whatever three nodes have: those that a task may use can all run its one tool."""
    for tools in itertools.product([(), ("builtin",), ("genai-bench",), BOTH], repeat=3):
        offers = nodes(*tools)

        planned = make_plan(make_file(), offers)

        [experiment] = planned.experiments
        if planned.benchmark_tool is None:
            assert planned.missing
            continue
        assert planned.benchmark_tool is not AUTO
        assert experiment.request.node_ids == tuple(
            o.executor_id for o in offers if planned.benchmark_tool.value in o.benchmark_tools
        )
        assert 2 * len(experiment.request.node_ids) >= sum(1 for those in tools if those)


def test_node_that_loses_the_tool_is_left_out() -> None:
    task = make_file()
    planned = make_plan(task, nodes(BOTH, BOTH))

    assert planned.benchmark_tool is GENAI
    later = nodes(BOTH, ("builtin",))
    assert Installation(later).find_eligible(
        planned.planner.engines[SINGLE].planner.workload, GENAI
    ) == ("n1",)
