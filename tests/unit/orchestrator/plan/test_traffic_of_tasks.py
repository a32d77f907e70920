"""Traffic that not every tool can make."""

from typing import Any

import pytest

from schemas.task.benchmark import BenchmarkTool
from services.orchestrator.domain.plan.benchmark_plan import benchmark_spec
from services.orchestrator.domain.plan.plan import make_plan
from shared.errors import RefusedError
from tests.support.worlds.orchestrator_records import OFFERS, make_file, make_offer


@pytest.mark.parametrize(
    "traffic", [{"turns": 3}, {"prefix_share": 0.5}, {"arrivals": ["poisson(2)"]}]
)
def test_auto_is_our_own_for_what_genai_bench_cannot_do(traffic: dict[str, Any]) -> None:
    offers = [make_offer(f"n{n}", tools=("genai-bench", "builtin")) for n in range(3)]

    assert make_plan(make_file(), offers).benchmark_tool is BenchmarkTool.GENAI_BENCH
    planned = make_plan(make_file(benchmark=traffic), offers)
    assert planned.benchmark_tool is BenchmarkTool.BUILTIN


def test_conversations_reach_the_executor_as_they_are_asked_for() -> None:
    task = make_file(benchmark={"turns": 3, "think_seconds": 2.5})

    spec = benchmark_spec(task, BenchmarkTool.BUILTIN)

    assert (spec.turns, spec.think_seconds, spec.is_warm) == (3, 2.5, True)
    assert not benchmark_spec(make_file(), BenchmarkTool.BUILTIN).is_warm


@pytest.mark.parametrize(
    ("benchmark", "path"),
    [
        ({"turns": 3, "tool": "genai-bench"}, "$.benchmark.turns"),
        ({"think_seconds": 1.0}, "$.benchmark.turns"),
        ({"turns": 3, "think_seconds": 3000.0}, "$.benchmark.think_seconds"),
    ],
)
def test_conversations_that_none_could_measure_are_refused(
    benchmark: dict[str, Any], path: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        make_plan(make_file(benchmark=benchmark), OFFERS)

    assert refused.value.path == path
