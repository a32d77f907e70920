"""The driver's own samples of one metric, in brief."""

from collections.abc import Sequence

from schemas.telemetry.readings import Buffered, BufferedMetric


def summarize(
    metric: BufferedMetric,
    values: Sequence[float],
    first_at_us: int,
    last_at_us: int,
    divisor: float = 1.0,
) -> Buffered:
    """Summarize values, at least one; each is divided by `divisor`."""
    return Buffered(
        metric,
        len(values),
        min(values) / divisor,
        max(values) / divisor,
        sum(values) / len(values) / divisor,
        first_at_us,
        last_at_us,
    )
