"""What a task's benchmark asks of a tool, and what each tool takes of it: each check raises
UnsupportedTraffic for anything else.
"""

import random
import re
from dataclasses import replace
from typing import Final

from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool
from schemas.task.modality import Modality
from schemas.task.task_file import BenchmarkConfig
from schemas.task.trust import RunInfo
from shared.benchmarks.arrivals import is_trace, loads
from shared.benchmarks.builtin.conversation import check_turns
from shared.benchmarks.levels.level_choice import check_load_search
from shared.benchmarks.prompts import check_dataset_scenario
from shared.benchmarks.tools.abilities import check_abilities
from shared.benchmarks.traced import TRACE, check_trace_scenario
from shared.benchmarks.traffic import (
    DATASET,
    PREFLIGHT_SIZE,
    RequestSize,
    UnsupportedTraffic,
    parse_scenario,
    request_parameters,
)

MIN_REQUESTS: Final = 8
WHOLE_RUN: Final = RunInfo()
_GENERATED: Final = re.compile(r"[DNUERI]\(.*")


def load_spec(
    config: BenchmarkConfig, constraints: str, tool: BenchmarkTool, run: RunInfo = WHOLE_RUN
) -> BenchmarkSpec:
    """Return the benchmark without its quality probe; minutes become seconds."""
    return BenchmarkSpec(
        task=config.task,
        model_name=config.model_name,
        model_tokenizer=config.model_tokenizer,
        traffic_scenarios=config.traffic_scenarios,
        num_concurrency=config.num_concurrency,
        max_time_per_level_seconds=config.max_time_per_iteration * 60,
        max_requests_per_level=_requests(config, run.request_divisor),
        warmup_requests=config.warmup_requests,
        additional_params=config.additional_params,
        tool=tool,
        max_error_rate=config.max_error_rate,
        arrivals=config.arrivals,
        arrival_trace_seconds=config.arrival_trace_seconds,
        prefix_share=config.prefix_share,
        turns=config.turns,
        think_seconds=config.think_seconds,
        load_search=config.load_search,
        constraints=constraints if config.load_search is not None else "",
        seed=run.seed,
        dataset=config.dataset,
        trace=config.trace,
        adapters=config.adapters,
        batch_size=config.batch_size,
    )


def _requests(config: BenchmarkConfig, divisor: int) -> int:
    """Return the requests of a level: enough to keep its greatest concurrency busy."""
    most = config.max_requests_per_iteration
    return min(most, max(-(-most // divisor), max(config.num_concurrency), MIN_REQUESTS))


def check_generated(spec: BenchmarkSpec) -> None:
    """Check for the built-in generator and AIPerf: all kinds of scenarios, prompts of a dataset,
    and traces.
    """
    is_aiperf = spec.tool is BenchmarkTool.AIPERF
    check_abilities(spec, BenchmarkTool.AIPERF if is_aiperf else BenchmarkTool.BUILTIN)
    for scenario in spec.traffic_scenarios:
        check_dataset_scenario(scenario, has_dataset=spec.dataset is not None)
        check_trace_scenario(scenario, has_trace=spec.trace is not None)
        if scenario not in {DATASET, TRACE}:
            parse_scenario(scenario)
        elif spec.prefix_share:
            raise UnsupportedTraffic(
                f"expected no shared prefix in the scenario {scenario!r}, which sends prompts as "
                "they are",
                "$.benchmark.prefix_share",
            )
    _check_trace(spec)
    loads(spec)
    check_turns(spec)
    check_load_search(spec)
    request_parameters(spec.additional_params, spec.modality)


def _check_trace(spec: BenchmarkSpec) -> None:
    is_used = TRACE in spec.traffic_scenarios or any(map(is_trace, spec.arrivals))
    if spec.trace is not None and not is_used:
        raise UnsupportedTraffic(
            "expected the scenario 'trace', which sends its requests, or arrivals of 'trace', "
            "which take its times",
            "$.benchmark.trace",
        )


def check_genai_bench(spec: BenchmarkSpec) -> None:
    """Check for genai-bench as it is driven here: closed loops, and prompts of a dataset."""
    check_abilities(spec, BenchmarkTool.GENAI_BENCH)
    for scenario in spec.traffic_scenarios:
        if _GENERATED.fullmatch(scenario):
            parse_scenario(scenario)
        elif scenario != DATASET:
            raise UnsupportedTraffic(
                f"expected a scenario of sizes, or dataset, got {scenario!r}",
                "$.benchmark.traffic_scenarios",
            )
    request_parameters(spec.additional_params, spec.modality)


def preflight_size(spec: BenchmarkSpec) -> RequestSize:
    """Return a small request of the benchmark's modality; without chat, its own first one."""
    if spec.modality is Modality.TEXT:
        return PREFLIGHT_SIZE
    size = parse_scenario(spec.traffic_scenarios[0], spec.batch_size)(random.Random(0))  # noqa: S311  # no secret
    tokens = min(size.num_output_tokens, PREFLIGHT_SIZE.num_output_tokens)
    return replace(size, num_output_tokens=tokens)
