"""What each tool takes of a benchmark. Each check raises UnsupportedTraffic for anything else."""

import re
from typing import Final

from schemas.task.benchmark import BenchmarkSpec
from schemas.task.task_file import BenchmarkConfig
from shared.benchmarks.arrivals import loads
from shared.benchmarks.builtin.conversation import check_turns
from shared.benchmarks.levels.level_choice import check_load_search
from shared.benchmarks.traffic import (
    DATASET,
    UnsupportedTraffic,
    parse_scenario,
    request_parameters,
)

TEXT_TO_TEXT: Final = "text-to-text"
_GENERATED: Final = re.compile(r"[DNU]\(.*")


def check_generated(spec: BenchmarkSpec) -> None:
    """Check for the built-in generator and AIPerf: chat completions of the kinds D, N and U."""
    _check_task(spec)
    for scenario in spec.traffic_scenarios:
        parse_scenario(scenario)
    loads(spec)
    check_turns(spec)
    check_load_search(spec)
    request_parameters(spec.additional_params)


def check_genai_bench(spec: BenchmarkSpec) -> None:
    """Check for genai-bench as it is driven here: closed loops, and prompts of a dataset."""
    _check_task(spec)
    for name in beyond_genai_bench(spec):
        raise UnsupportedTraffic(
            f"expected 'builtin' or 'aiperf' for {name}, as genai-bench cannot do this",
            f"$.benchmark.{name}",
        )
    for scenario in spec.traffic_scenarios:
        if _GENERATED.fullmatch(scenario):
            parse_scenario(scenario)
        elif scenario != DATASET:
            raise UnsupportedTraffic(
                f"expected a scenario of text, D, N, U or dataset, got {scenario!r}",
                "$.benchmark.traffic_scenarios",
            )
    request_parameters(spec.additional_params)


def beyond_genai_bench(spec: BenchmarkSpec | BenchmarkConfig) -> list[str]:
    """Return the names of the requested fields that genai-bench cannot serve."""
    requested = {
        "arrivals": spec.arrivals,
        "prefix_share": spec.prefix_share,
        "turns": spec.turns > 1,
        "think_seconds": spec.think_seconds,
        "load_search": spec.load_search,
    }
    return [name for name, value in requested.items() if value]


def _check_task(spec: BenchmarkSpec) -> None:
    if spec.task != TEXT_TO_TEXT:
        raise UnsupportedTraffic(
            f"expected {TEXT_TO_TEXT!r}, got {spec.task!r}", "$.benchmark.task"
        )
