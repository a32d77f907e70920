"""Percentiles of measured values."""

from collections.abc import Sequence


def percentile(ascending: Sequence[float], percent: float) -> float:
    """Interpolate between the two nearest ranks, as numpy's `linear` does; of at least one value
    in ascending order.
    """
    place = percent / 100 * (len(ascending) - 1)
    below = int(place)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (ascending[above] - ascending[below]) * (place - below)
