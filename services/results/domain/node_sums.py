"""The history of a node, from that of its GPUs."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from statistics import fmean
from typing import Final

from schemas.results.series import DeviceSeries, NodeSeries, SeriesMetric, SeriesPoint
from services.results.domain.device_parts import MIG

Combine = Callable[[Sequence[float]], float]
# What a node has more of with each GPU; of the others it has the mean.
ADDED_UP: Final = frozenset({SeriesMetric.MEMORY_USED_MB, SeriesMetric.POWER_DRAW_W})


def sums_by_node(metric: SeriesMetric, devices: Iterable[DeviceSeries]) -> tuple[NodeSeries, ...]:
    """Put the GPUs of each node together, bucket by bucket, as far as they are known there.

    Of what is added up, min and max are those of the GPUs added up, which they need not have had at
    once; of the others the lowest and the highest of any GPU.
    """
    of_node: dict[str, list[DeviceSeries]] = {}
    for device in devices:
        of_node.setdefault(device.node_id, []).append(device)
    if metric in ADDED_UP:
        of_node = {node_id: _without_parts(gpus) for node_id, gpus in of_node.items()}
    return tuple(
        NodeSeries(
            node_id=node_id,
            gpus=len(gpus),
            memory_total_mb=_total_mb(gpus),
            points=_together(metric, gpus),
        )
        for node_id, gpus in sorted(of_node.items())
    )


def _without_parts(gpus: list[DeviceSeries]) -> list[DeviceSeries]:
    """Leave MIG instances out where their GPUs are there: these count what instances use."""
    return [gpu for gpu in gpus if not gpu.device_uuid.startswith(MIG)] or gpus


def _total_mb(gpus: Iterable[DeviceSeries]) -> int | None:
    totals = [gpu.memory_total_mb for gpu in gpus if gpu.memory_total_mb is not None]
    return sum(totals) if totals else None


def _together(metric: SeriesMetric, gpus: Iterable[DeviceSeries]) -> tuple[SeriesPoint, ...]:
    at: dict[datetime, list[SeriesPoint]] = {}
    for gpu in gpus:
        for point in gpu.points:
            at.setdefault(point.at, []).append(point)
    lowest: Combine
    highest: Combine
    middle: Combine
    lowest, highest, middle = (sum, sum, sum) if metric in ADDED_UP else (min, max, fmean)
    return tuple(
        SeriesPoint(
            at=moment,
            min=lowest([point.min for point in points]),
            max=highest([point.max for point in points]),
            mean=middle([point.mean for point in points]),
        )
        for moment, points in sorted(at.items())
    )
