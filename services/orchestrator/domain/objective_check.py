"""Whether a task measures what its objective is about, and no more than can be measured."""

from schemas.benchmark import LARGEST_CONCURRENCY, LARGEST_LEVELS
from schemas.errors import ErrorCode
from schemas.task import BenchmarkConfig, Objective, OptimizationSpec
from shared.benchmarks.constraints import bounds_a_time, parse_constraints
from shared.errors import RefusedError


def refuse_unbounded_goodput(spec: OptimizationSpec) -> None:
    """Raises RefusedError, also for constraints that cannot be read."""
    bounds = parse_constraints(spec.constraints)
    if spec.objective is Objective.MAXIMIZE_GOODPUT and not bounds_a_time(bounds):
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
