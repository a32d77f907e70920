"""A node's history, from its GPUs'."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from schemas.results.series import DeviceSeries, NodeSeries, SeriesMetric, SeriesPoint
from services.results.domain.node_sums import sums_by_node

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def series(node: str, index: int, *means: float | None, total: int | None = 80_000) -> DeviceSeries:
    return DeviceSeries(
        node_id=node,
        device_uuid=f"GPU-{index}",
        index=index,
        memory_total_mb=total,
        points=tuple(
            SeriesPoint(at=NOON + timedelta(minutes=at), min=mean - 1, max=mean + 1, mean=mean)
            for at, mean in enumerate(means)
            if mean is not None
        ),
    )


def means(node: NodeSeries) -> list[tuple[float, float, float]]:
    return [(point.min, point.mean, point.max) for point in node.points]


def test_node_memory_is_the_sum_of_its_gpus() -> None:
    first, second = sums_by_node(
        SeriesMetric.MEMORY_USED_MB,
        [series("a", 0, 10, 20), series("a", 1, 30, 40), series("b", 0, 5, total=None)],
    )

    assert (first.node_id, first.gpus, first.memory_total_mb) == ("a", 2, 160_000)
    assert means(first) == [(38, 40, 42), (58, 60, 62)]
    assert (second.gpus, second.memory_total_mb) == (1, None)


def test_what_instances_use_is_counted_once() -> None:
    whole = series("a", 0, 30)
    part = replace(series("a", 1, 10, total=10_000), device_uuid="MIG-1")

    [node] = sums_by_node(SeriesMetric.MEMORY_USED_MB, [whole, part])
    [parts] = sums_by_node(SeriesMetric.MEMORY_USED_MB, [part])

    assert (node.gpus, node.memory_total_mb, means(node)) == (1, 80_000, [(29, 30, 31)])
    assert (parts.gpus, parts.memory_total_mb) == (1, 10_000)


def test_node_utilization_is_the_mean_of_gpus() -> None:
    [node] = sums_by_node(
        SeriesMetric.UTILIZATION_PERCENT, [series("a", 0, 10, None), series("a", 1, 30, 50)]
    )

    assert means(node) == [(9, 20, 31), (49, 50, 51)]
