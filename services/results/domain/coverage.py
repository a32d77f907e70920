"""How much of a window is known from samples."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from services.results.domain.reading import Reading, Span, inside

# Two ticks further apart than this many intervals have at least one missing between them.
LARGEST_GAP_INTERVALS: Final = 1.5


def covered_seconds(readings: Sequence[Reading], spans: Sequence[Span]) -> float:
    """How many seconds of the spans the readings of one GPU stand for.

    Between two consecutive ticks everything is covered; beside a missing one, a tick stands for
    half an interval. Readings around the spans count as neighbours, so that a span shorter than
    the interval is judged rightly; spans without any reading inside are not covered at all.
    `readings` are sorted by time.
    """
    if not inside(readings, spans):
        return 0.0
    return sum(span.overlap(start, end) for start, end in _covered(readings) for span in spans)


def _covered(readings: Sequence[Reading]) -> list[tuple[float, float]]:
    """Stretches that do not overlap, in order."""
    first, last = readings[0], readings[-1]
    stretches = [(first.at - first.interval_seconds / 2, first.at)]
    for before, after in pairwise(readings):
        largest_gap = LARGEST_GAP_INTERVALS * max(before.interval_seconds, after.interval_seconds)
        if after.at - before.at <= largest_gap:
            stretches.append((before.at, after.at))
        else:
            stretches.append((before.at, before.at + before.interval_seconds / 2))
            stretches.append((after.at - after.interval_seconds / 2, after.at))
    stretches.append((last.at, last.at + last.interval_seconds / 2))
    return stretches
