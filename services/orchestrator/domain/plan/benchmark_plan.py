"""A task's benchmark, as executors are given it."""

from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool
from schemas.task.task_file import BenchmarkConfig, OptimizationSpec, TaskFile
from schemas.task.trust import RunInfo, RunRole
from services.orchestrator.domain.plan.quality import quality_probe
from shared.benchmarks.tools.abilities import list_unserved
from shared.benchmarks.tools.spec_check import (
    WHOLE_RUN,
    check_genai_bench,
    check_generated,
    load_spec,
)
from shared.benchmarks.traffic import DATASET
from shared.errors import RefusedError


def benchmark_spec(task: TaskFile, tool: BenchmarkTool, run: RunInfo = WHOLE_RUN) -> BenchmarkSpec:
    """Return the task's benchmark as executors are given it, with `tool`."""
    load = load_spec(task.benchmark, task.optimization.constraints, tool, run)
    if task.endpoint is not None:
        load = replace(load, max_in_flight=task.endpoint.max_concurrency)
    return load if run.role is RunRole.SCREEN else replace(load, quality=quality_probe(task))


def choose_wanted_tool(config: BenchmarkConfig) -> BenchmarkTool:
    """Return the task's; for `auto` the one that can, where not every tool can."""
    if config.tool is not BenchmarkTool.AUTO:
        return config.tool
    if list_unserved(config, BenchmarkTool.GENAI_BENCH):
        return BenchmarkTool.BUILTIN
    has_own_prompts = DATASET in config.traffic_scenarios and config.dataset is None
    return BenchmarkTool.GENAI_BENCH if has_own_prompts else config.tool


def refuse_bad_benchmark(config: BenchmarkConfig, search: OptimizationSpec) -> None:
    """Raise RefusedError for a benchmark that no tool could run, or not the requested one:
    every executor would refuse every experiment of it.
    """
    _refuse_bad_load_search(config, search)
    _refuse_unknown_upload(config)
    tool = choose_wanted_tool(config)
    check = check_genai_bench if tool is BenchmarkTool.GENAI_BENCH else check_generated
    check(load_spec(config, search.constraints, tool))


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


def _refuse_unknown_upload(config: BenchmarkConfig) -> None:
    """Refuse an uploaded file that nobody has looked up: only the gateway knows what there is."""
    for name, source in (("dataset", config.dataset), ("trace", config.trace)):
        if source is not None and source.upload is not None and source.sha256 is None:
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                "expected a task with an uploaded file over HTTP, which fills in its SHA-256;"
                " over the bus name `sha256` as well",
                path=f"$.benchmark.{name}.upload",
            )
