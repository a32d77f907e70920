"""A task's benchmark, as executors are given it."""

from typing import Final

from schemas.benchmark import BenchmarkSpec, BenchmarkTool
from schemas.errors import ErrorCode
from schemas.task import BenchmarkConfig, Objective, TaskFile
from schemas.trust import RunInfo, RunRole
from services.orchestrator.domain.quality import quality_probe
from shared.benchmarks.level_choice import check_load_search
from shared.errors import RefusedError

FEWEST_REQUESTS: Final = 8
WHOLE_RUN: Final = RunInfo()


def benchmark_spec(task: TaskFile, tool: BenchmarkTool, run: RunInfo = WHOLE_RUN) -> BenchmarkSpec:
    """The task's benchmark in the executor's terms, with `tool`: minutes become seconds."""
    config = task.benchmark
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
        load_search=config.load_search,
        constraints=task.optimization.constraints if config.load_search is not None else "",
        seed=run.seed,
        quality=quality_probe(task) if run.role is not RunRole.SCREEN else None,
    )


def refuse_bad_load_search(task: TaskFile) -> None:
    """Raises RefusedError also for one that cannot be searched."""
    is_searched = task.benchmark.load_search is not None
    if is_searched is not (task.optimization.objective is Objective.MAXIMIZE_LOAD):
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected the objective 'maximize_load' and benchmark.load_search together, got one",
            path="$.optimization.objective",
        )
    if is_searched and task.benchmark.tool is BenchmarkTool.GENAI_BENCH:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected 'builtin', 'aiperf' or 'auto', as genai-bench cannot search a load",
            path="$.benchmark.tool",
        )
    check_load_search(benchmark_spec(task, BenchmarkTool.BUILTIN))


def _requests(config: BenchmarkConfig, divisor: int) -> int:
    """Of a level; few of them keep its greatest concurrency busy."""
    most = config.max_requests_per_iteration
    return min(most, max(-(-most // divisor), max(config.num_concurrency), FEWEST_REQUESTS))
