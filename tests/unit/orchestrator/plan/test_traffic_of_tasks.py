"""Traffic that not every tool can make."""

from typing import Any

import pytest

from schemas.task.benchmark import BenchmarkTool
from services.orchestrator.domain.plan.benchmark_plan import benchmark_spec
from shared.errors import RefusedError
from tests.support.worlds.orchestrator_records import OFFERS, make_file, make_offer, make_plan


@pytest.mark.parametrize(
    "traffic", [{"turns": 3}, {"prefix_share": 0.5}, {"arrivals": ["poisson(2)"]}]
)
def test_auto_is_builtin_beyond_genai_bench(traffic: dict[str, Any]) -> None:
    offers = [make_offer(f"n{n}", tools=("genai-bench", "builtin")) for n in range(3)]

    assert make_plan(make_file(), offers).benchmark_tool is BenchmarkTool.GENAI_BENCH
    planned = make_plan(make_file(benchmark=traffic), offers)
    assert planned.benchmark_tool is BenchmarkTool.BUILTIN


def test_conversations_reach_the_executor_unchanged() -> None:
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
def test_unmeasurable_conversations_are_refused(benchmark: dict[str, Any], path: str) -> None:
    with pytest.raises(RefusedError) as refused:
        make_plan(make_file(benchmark=benchmark), OFFERS)

    assert refused.value.path == path
