"""Which configurations trade latency for throughput, and which only lose."""

from collections.abc import Sequence

from schemas.gateway.views import ExperimentDetail
from schemas.task.benchmark import BenchmarkMetrics
from schemas.task.objectives import Objective
from schemas.task.report import FrontPoint, ParetoPoint
from shared.benchmarks.verdicts.pareto import front
from shared.benchmarks.verdicts.ranking import MEASURES, goals_of, score


def pareto_front(comparable: Sequence[ExperimentDetail]) -> tuple[ParetoPoint, ...]:
    """Return the points by latency, the shortest first; each serves more than all before it."""
    points = sorted(
        (point for experiment in comparable if (point := _point(experiment)) is not None),
        key=lambda point: (point.mean_e2e_latency, -point.throughput_per_gpu, point.ordinal),
    )
    front: list[ParetoPoint] = []
    for point in points:
        if not front or point.throughput_per_gpu > front[-1].throughput_per_gpu:
            front.append(point)
    return tuple(front)


def objectives_front(
    goals: Sequence[Objective], comparable: Sequence[ExperimentDetail]
) -> tuple[FrontPoint, ...]:
    """Return the configurations that none beats in all goals; empty if there is but one goal."""
    if len(goals) < 2:
        return ()
    metrics = [experiment.metrics or BenchmarkMetrics() for experiment in comparable]
    numbers = front([goals_of(goals, metric_set) for metric_set in metrics])
    return tuple(
        FrontPoint(
            ordinal=comparable[number].ordinal,
            parameters=comparable[number].parameters,
            measures={
                MEASURES[goal]: value
                for goal in goals
                if (value := score(goal, metrics[number])) is not None
            },
        )
        for number in numbers
    )


def _point(experiment: ExperimentDetail) -> ParetoPoint | None:
    metrics = experiment.metrics
    if metrics is None or metrics.mean_e2e_latency is None:
        return None
    if metrics.max_total_throughput_per_gpu is None:
        return None
    return ParetoPoint(
        ordinal=experiment.ordinal,
        mean_e2e_latency=metrics.mean_e2e_latency,
        throughput_per_gpu=metrics.max_total_throughput_per_gpu,
    )
