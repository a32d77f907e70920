"""Whether a task measures what its objective is about."""

from schemas.errors import ErrorCode
from schemas.task import Objective, OptimizationSpec
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
