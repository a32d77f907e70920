"""Benchmarks that no executor could run are refused before anything waits for a GPU."""

from typing import Any

import pytest

from schemas.task.benchmark import BenchmarkTool
from shared.errors import RefusedError
from tests.support.worlds.orchestrator_records import OFFERS, make_file, make_offer, make_plan

GENAI, BUILTIN = BenchmarkTool.GENAI_BENCH, BenchmarkTool.BUILTIN


def deep(levels: int) -> Any:
    return {"a": deep(levels - 1)} if levels else 1


@pytest.mark.parametrize(
    ("benchmark", "path"),
    [
        ({"additional_params": {"n": 2}}, "$.benchmark.additional_params.n"),
        ({"additional_params": {"top_p": "hot"}}, "$.benchmark.additional_params.top_p"),
        ({"additional_params": {"top_p": "NaN"}}, "$.benchmark.additional_params.top_p"),
        ({"additional_params": {"x": deep(33)}}, "$.benchmark.additional_params.x"),
        ({"additional_params": {"x": [deep(32)]}}, "$.benchmark.additional_params.x"),
        ({"traffic_scenarios": ["D(1,1)", "E(100)"]}, "$.benchmark.traffic_scenarios"),
        ({"traffic_scenarios": ["U(8,5)/(1,2)"]}, "$.benchmark.traffic_scenarios"),
        ({"traffic_scenarios": ["dataset"], "tool": "builtin"}, "$.benchmark.traffic_scenarios"),
        ({"arrivals": ["poisson(0)"]}, "$.benchmark.arrivals[0]"),
        ({"arrivals": ["trace"]}, "$.benchmark.arrival_trace_seconds"),
        ({"arrivals": ["closed(2)"], "tool": "genai-bench"}, "$.benchmark.arrivals"),
        ({"prefix_share": 0.5, "tool": "genai-bench"}, "$.benchmark.prefix_share"),
        ({"task": "text-to-embeddings"}, "$.benchmark.task"),
    ],
)
def test_unrunnable_benchmark_is_refused_at_once(benchmark: dict[str, Any], path: str) -> None:
    with pytest.raises(RefusedError) as refused:
        make_plan(make_file(benchmark=benchmark), OFFERS)

    assert refused.value.path == path


@pytest.mark.parametrize(
    ("benchmark", "tool"),
    [
        ({"arrivals": ["closed(2)"]}, BUILTIN),
        ({"prefix_share": 0.5}, BUILTIN),
        ({"traffic_scenarios": ["dataset"]}, GENAI),
        ({"additional_params": {"x": deep(32), "top_p": "0.5"}}, GENAI),
    ],
)
def test_auto_becomes_the_only_able_tool(benchmark: dict[str, Any], tool: BenchmarkTool) -> None:
    offers = [make_offer(f"n{n}", tools=("genai-bench", "builtin")) for n in range(2)]

    assert make_plan(make_file(benchmark=benchmark), offers).benchmark_tool is tool
