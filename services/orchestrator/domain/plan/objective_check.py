"""Whether a task measures what its objectives are about, and no more than can be measured."""

from collections.abc import Iterator

from schemas.errors import ErrorCode
from schemas.task.benchmark import LARGEST_CONCURRENCY, LARGEST_LEVELS
from schemas.task.task_file import BenchmarkConfig, Objective, OptimizationSpec
from shared.benchmarks.verdicts.constraints import bounds_a_time, parse_constraints
from shared.errors import RefusedError


def refuse_bad_objectives(spec: OptimizationSpec) -> None:
    """Raises RefusedError, also for constraints that cannot be read."""
    bounds = parse_constraints(spec.constraints)
    if Objective.MAXIMIZE_LOAD in spec.goals[1:]:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected 'maximize_load' as the first of the objectives",
            path="$.optimization.objectives",
        )
    if Objective.MAXIMIZE_GOODPUT in spec.goals and not bounds_a_time(bounds):
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected constraints that bound a time, as ttft:p99<300ms: goodput counts the "
            "requests that meet them",
            path="$.optimization.constraints",
        )


def refuse_excessive(config: BenchmarkConfig) -> None:
    """Raises RefusedError for more levels, or more requests at once, than can be measured."""
    levels = len(config.traffic_scenarios) * len(config.arrivals or config.num_concurrency)
    if levels > LARGEST_LEVELS:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {LARGEST_LEVELS} pairs of a traffic scenario and a concurrency, "
            f"got {levels}",
            path="$.benchmark.num_concurrency",
        )
    for place, concurrency in enumerate(config.num_concurrency):
        if concurrency > LARGEST_CONCURRENCY:
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"expected at most {LARGEST_CONCURRENCY} requests at once, got {concurrency}",
                path=f"$.benchmark.num_concurrency[{place}]",
            )


def objective_notes(spec: OptimizationSpec) -> Iterator[str]:
    """What the objectives mean for the result."""
    if len(spec.goals) > 1:
        others = ", ".join(each.value for each in spec.goals[1:])
        yield (
            f"the best is named by {spec.goals[0].value}; the report has all configurations that "
            f"none beats in it and {others}"
        )
    if Objective.MINIMIZE_COST in spec.goals:
        yield (
            "minimize_cost: GPU models without a price (GPUSTEWARD_RESULTS_GPU_HOUR_PRICES) have "
            "no cost, and what is measured on them no score by it"
        )
