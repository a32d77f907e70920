"""Whether a task measures what its objectives are about, and no more than can be measured."""

from collections.abc import Iterator

from schemas.errors import ErrorCode
from schemas.task.benchmark import MAX_CONCURRENCY, MAX_LEVELS
from schemas.task.modality import Modality
from schemas.task.objectives import Objective
from schemas.task.task_file import BenchmarkConfig, OptimizationSpec, TaskFile
from shared.benchmarks.levels.level_text import items_text
from shared.benchmarks.verdicts.constraints import METRICS, bounds_a_time, parse_constraints
from shared.errors import RefusedError


def refuse_bad_objectives(spec: OptimizationSpec) -> None:
    """Raises RefusedError, also for constraints that cannot be read."""
    bounds = parse_constraints(spec.constraints)
    if any(goal.traits.needs_load_search for goal in spec.goals[1:]):
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected 'maximize_load' as the first of the objectives",
            path="$.optimization.objectives",
        )
    needs_time_bound = any(goal.traits.needs_time_bound for goal in spec.goals)
    if needs_time_bound and not bounds_a_time(bounds):
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected constraints that bound a time, as ttft:p99<300ms: goodput counts the "
            "requests that meet them",
            path="$.optimization.constraints",
        )


def refuse_unmeasured(task: TaskFile) -> None:
    """Raises RefusedError for objectives, constraints and an SLO of what the task's requests do not
    show: of tokens where answers come whole, of items where they do not.
    """
    modality, spec = task.benchmark.modality, task.optimization
    for constraint in parse_constraints(spec.constraints):
        has_tokens = METRICS[constraint.metric].has_tokens
        if has_tokens is not None and has_tokens is not modality.has_tokens:
            measured = [
                name
                for name, metric in METRICS.items()
                if metric.has_tokens in (None, modality.has_tokens)
            ]
            expected = f"constraints on {', '.join(measured)} for {modality.value}"
            raise _make_refusal(modality, expected, constraint.text, "$.optimization.constraints")
    if modality.has_tokens:
        return
    for goal in spec.goals:
        if goal.traits.needs_tokens:
            able = (other.value for other in Objective if not other.traits.needs_tokens)
            expected = f"one of {', '.join(able)} for {modality.value}"
            raise _make_refusal(modality, expected, goal.value, "$.optimization.objective")
    for name in ("ttft", "tpot"):
        if task.slo is not None and getattr(task.slo, name) is not None:
            expected = f"an SLO on latency alone for {modality.value}"
            raise _make_refusal(modality, expected, f"one on {name}", f"$.slo.{name}")


def _make_refusal(modality: Modality, expected: str, got: str, path: str) -> RefusedError:
    why = "come token by token" if modality.has_tokens else "come whole and have no tokens"
    message = f"expected {expected}, whose answers {why}, got {got}"
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=path)


def refuse_excessive(config: BenchmarkConfig) -> None:
    """Raises RefusedError for more levels, or more requests at once, than can be measured."""
    levels = len(config.traffic_scenarios) * len(config.arrivals or config.num_concurrency)
    if levels > MAX_LEVELS:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {MAX_LEVELS} pairs of a traffic scenario and a concurrency, "
            f"got {levels}",
            path="$.benchmark.num_concurrency",
        )
    for place, concurrency in enumerate(config.num_concurrency):
        if concurrency > MAX_CONCURRENCY:
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"expected at most {MAX_CONCURRENCY} requests at once, got {concurrency}",
                path=f"$.benchmark.num_concurrency[{place}]",
            )


def traffic_notes(config: BenchmarkConfig) -> Iterator[str]:
    """Yield what requests have beside text."""
    for scenario in config.traffic_scenarios:
        if items := items_text(scenario, config.batch_size):
            yield f"{scenario}: each request has {items}"


def objective_notes(spec: OptimizationSpec) -> Iterator[str]:
    """Yield what the objectives mean for the result."""
    if len(spec.goals) > 1:
        other_goals = ", ".join(goal.value for goal in spec.goals[1:])
        yield (
            f"the best is named by {spec.goals[0].value}; the report has all configurations that "
            f"none beats in it and {other_goals}"
        )
    if any(goal.traits.needs_prices for goal in spec.goals):
        yield (
            "minimize_cost: GPU models without a price (GPUSTEWARD_RESULTS_GPU_HOUR_PRICES) have "
            "no cost, and what is measured on them no score by it"
        )
