"""The driver's own samples of one metric, in brief."""

from collections.abc import Sequence

from schemas.telemetry import Buffered, BufferedMetric


def summarized(
    metric: BufferedMetric,
    values: Sequence[float],
    at_us: Sequence[int],
    *,
    divisor: float = 1.0,
) -> Buffered | None:
    """None if there are none. `at_us` may be in any order; values are divided by `divisor`."""
    if not values:
        return None
    return Buffered(
        metric=metric,
        count=len(values),
        minimum=min(values) / divisor,
        maximum=max(values) / divisor,
        mean=sum(values) / len(values) / divisor,
        first_at_us=min(at_us),
        last_at_us=max(at_us),
    )
