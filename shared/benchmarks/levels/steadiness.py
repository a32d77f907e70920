"""Whether requests were measured in a steady state, from their times alone."""

import math
import statistics
from collections.abc import Sequence
from typing import Final

FEWEST: Final = 40
BATCHES: Final = 10
MAX_ERROR: Final = 0.05
# Student's t of the slope through ten batches, two-sided: one steady level in a hundred drifts.
T_SLOPE: Final = 3.36
T_TRANSIENT: Final = 4.0


def little_error(in_flight: float, per_second: float, mean_seconds: float) -> float | None:
    """|N - X R| / N: 0 where what is counted, what is timed and what was in flight agree."""
    if in_flight <= 0:
        return None
    return abs(in_flight - per_second * mean_seconds) / in_flight


def transient(seconds: Sequence[float]) -> int:
    """Return how many of the first requests belong to the transient at the start, in order of
    sending.

    The cut with the least standard error of the rest (MSER), of at most half, and only if what is
    cut off differs from the rest by more than 5 % and by more than chance between batches.
    """
    if len(seconds) < FEWEST:
        return 0
    size = len(seconds) // (2 * BATCHES)
    cuts = [batch * size for batch in range(BATCHES + 1)]
    cut = min(cuts, key=lambda place: _squared_error(seconds[place:]))
    if not cut:
        return 0
    batch_means = [
        statistics.fmean(seconds[at : at + size]) for at in range(cut, len(seconds), size)
    ]
    mean, spread = statistics.fmean(batch_means), statistics.stdev(batch_means)
    first = [statistics.fmean(seconds[at : at + size]) for at in range(0, cut, size)]
    # The start is at its worst at the very first, whatever follows it in the cut.
    distance = max(abs(value - mean) for value in first)
    is_real = distance > MAX_ERROR * mean and distance > T_TRANSIENT * spread
    return cut if is_real else 0


def _squared_error(values: Sequence[float]) -> float:
    return statistics.pvariance(values) / len(values)


def drift(seconds: Sequence[float]) -> float | None:
    """Return the gain of a line through batch means from the first to the last, as a share of their
    mean.

    None with too few requests to say; 0 where the line is no better than chance.
    """
    if len(seconds) < FEWEST:
        return None
    size = len(seconds) / BATCHES
    means = [
        statistics.fmean(seconds[round(batch * size) : round((batch + 1) * size)])
        for batch in range(BATCHES)
    ]
    mean = statistics.fmean(means)
    places = range(BATCHES)
    slope, start = statistics.linear_regression(places, means)
    residual = math.fsum((y - start - slope * x) ** 2 for x, y in zip(places, means, strict=True))
    spread = BATCHES * statistics.pvariance(places)
    error = math.sqrt(residual / (BATCHES - 2) / spread)
    if mean <= 0 or abs(slope) <= T_SLOPE * error:
        return 0.0
    return slope * (BATCHES - 1) / mean
