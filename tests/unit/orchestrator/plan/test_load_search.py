"""Tasks whose experiments look for the greatest load."""

from typing import Any

import pytest

from schemas.task.benchmark import BenchmarkTool
from services.orchestrator.domain.plan.benchmark_plan import benchmark_spec
from shared.errors import RefusedError
from tests.support.worlds.orchestrator_records import OFFERS, make_file, make_offer, make_plan

SEARCH = {"load_search": {"max": 64}}
AIM = {"objective": "maximize_load", "constraints": "ttft:p99<300ms"}


def test_load_search_takes_an_able_tool() -> None:
    task = make_file(benchmark=SEARCH, optimization=AIM)

    spec = benchmark_spec(task, BenchmarkTool.BUILTIN)

    assert make_plan(task, OFFERS).benchmark_tool is BenchmarkTool.BUILTIN
    assert (spec.load_search, spec.constraints) == (task.benchmark.load_search, "ttft:p99<300ms")
    assert spec.num_levels == 14
    assert benchmark_spec(make_file(optimization={**AIM}), BenchmarkTool.BUILTIN).constraints == ""


@pytest.mark.parametrize("tool", [BenchmarkTool.BUILTIN, BenchmarkTool.AIPERF])
def test_load_search_prefers_the_requested_tool(
    tool: BenchmarkTool,
) -> None:
    asked = {"tool": tool.value} if tool is not BenchmarkTool.BUILTIN else {}
    offers = [make_offer(f"n{n}", tools=("genai-bench",)) for n in range(3)]
    offers.append(make_offer("n9", tools=("builtin", "aiperf")))

    planned = make_plan(make_file(benchmark=SEARCH | asked, optimization=AIM), offers)

    assert planned.benchmark_tool is tool
    assert planned.missing == ()


@pytest.mark.parametrize(
    ("benchmark", "optimization", "path"),
    [
        (SEARCH, {**AIM, "objective": "minimize_ttft"}, "$.optimization.objective"),
        ({}, AIM, "$.optimization.objective"),
        (SEARCH, {**AIM, "constraints": ""}, "$.optimization.constraints"),
        ({**SEARCH, "tool": "genai-bench"}, AIM, "$.benchmark.tool"),
        ({"load_search": {"min": 9, "max": 8}}, AIM, "$.benchmark.load_search.max"),
    ],
)
def test_impossible_load_search_is_refused(
    benchmark: dict[str, Any], optimization: dict[str, Any], path: str
) -> None:
    task = make_file(benchmark=benchmark, optimization=optimization)

    with pytest.raises(RefusedError) as refused:
        make_plan(task, OFFERS)

    assert refused.value.path == path
