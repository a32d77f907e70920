"""Which configurations trade latency for throughput, and which only lose."""

from collections.abc import Sequence

from schemas.gateway import ExperimentDetail
from schemas.task_report import ParetoPoint


def pareto_front(comparable: Sequence[ExperimentDetail]) -> tuple[ParetoPoint, ...]:
    """By latency, the shortest first; each further one serves more than all before it."""
    points = sorted(
        (point for each in comparable if (point := _point(each)) is not None),
        key=lambda point: (point.mean_e2e_latency, -point.throughput_per_gpu, point.ordinal),
    )
    front: list[ParetoPoint] = []
    for point in points:
        if not front or point.throughput_per_gpu > front[-1].throughput_per_gpu:
            front.append(point)
    return tuple(front)


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
