"""A task's benchmark, as executors are given it."""

from typing import Final

from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool
from schemas.task.task_file import BenchmarkConfig, OptimizationSpec, TaskFile
from schemas.task.trust import RunInfo, RunRole
from services.orchestrator.domain.plan.quality import quality_probe
from shared.benchmarks.tools.spec_check import (
    TEXT_TO_TEXT,
    beyond_genai_bench,
    check_genai_bench,
    check_generated,
)
from shared.benchmarks.traffic import DATASET
from shared.errors import RefusedError

MIN_REQUESTS: Final = 8
WHOLE_RUN: Final = RunInfo()


def benchmark_spec(task: TaskFile, tool: BenchmarkTool, run: RunInfo = WHOLE_RUN) -> BenchmarkSpec:
    """Return the task's benchmark as executors are given it, with `tool`."""
    load = _load_spec(task.benchmark, task.optimization.constraints, tool, run)
    return load if run.role is RunRole.SCREEN else replace(load, quality=quality_probe(task))


def _load_spec(
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
    )


def choose_wanted_tool(config: BenchmarkConfig) -> BenchmarkTool:
    """Return the task's; for `auto` the one that can, where not every tool can."""
    if config.tool is not BenchmarkTool.AUTO:
        return config.tool
    if beyond_genai_bench(config):
        return BenchmarkTool.BUILTIN
    return BenchmarkTool.GENAI_BENCH if DATASET in config.traffic_scenarios else config.tool


def refuse_bad_benchmark(config: BenchmarkConfig, search: OptimizationSpec) -> None:
    """Raise RefusedError for a benchmark that no tool could run, or not the requested one:
    every executor would refuse every experiment of it.
    """
    _refuse_bad_load_search(config, search)
    tool = choose_wanted_tool(config)
    if config.task != TEXT_TO_TEXT:
        raise RefusedError(
            ErrorCode.UNSUPPORTED,
            f"expected {TEXT_TO_TEXT!r}, got {config.task!r}",
            path="$.benchmark.task",
        )
    check = check_genai_bench if tool is BenchmarkTool.GENAI_BENCH else check_generated
    check(_load_spec(config, search.constraints, tool))


def _refuse_bad_load_search(config: BenchmarkConfig, search: OptimizationSpec) -> None:
    is_searched = config.load_search is not None
    if is_searched is not search.objective.traits.needs_load_search:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected the objective 'maximize_load' and benchmark.load_search together, got one",
            path="$.optimization.objective",
        )
    if is_searched and config.tool is BenchmarkTool.GENAI_BENCH:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected 'builtin', 'aiperf' or 'auto', as genai-bench cannot search a load",
            path="$.benchmark.tool",
        )


def _requests(config: BenchmarkConfig, divisor: int) -> int:
    """Return the requests of a level: enough to keep its greatest concurrency busy."""
    most = config.max_requests_per_iteration
    return min(most, max(-(-most // divisor), max(config.num_concurrency), MIN_REQUESTS))
