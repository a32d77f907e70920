"""How much of a window is known from samples."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from services.results.domain.reading import Reading, Span, inside

# Two ticks further apart than this many intervals have at least one missing between them.
MAX_GAP_INTERVALS: Final = 1.5


def coverage_seconds(
    readings: Sequence[Reading],
    spans: Sequence[Span],
    counts: Callable[[Reading], bool] = lambda _: True,
) -> float:
    """Return how many seconds of the spans the readings of one GPU stand for, or those that
    `counts` accepts.

    Between two consecutive ticks everything is covered, to the middle by each; beside a missing
    one, a tick stands for half an interval. Readings around the spans count as neighbours, so that
    a span shorter than the interval is judged rightly; spans without any reading inside are not
    covered at all. `readings` are sorted by time.
    """
    if not inside(readings, spans):
        return 0.0
    return sum(
        span.overlap(start, end)
        for reading, (start, end) in zip(readings, _stretches(readings), strict=True)
        if counts(reading)
        for span in spans
    )


def longest_gap_seconds(readings: Sequence[Reading], spans: Sequence[Span]) -> float:
    """The longest part of a span that no reading stands for."""
    stretches = _stretches(readings) if inside(readings, spans) else []
    return max((_longest_gap(stretches, span) for span in spans), default=0.0)


def missing_ticks(readings: Sequence[Reading], spans: Sequence[Span]) -> int:
    """Count missing ticks beside or within the spans, by the numbers of the readings."""
    return sum(
        max(0, second.sequence - first.sequence - 1)
        for first, second in pairwise(readings)
        if first.boot_id == second.boot_id
        and any(first.at < span.end and second.at > span.start for span in spans)
    )


def _longest_gap(stretches: Sequence[tuple[float, float]], span: Span) -> float:
    longest, known_until = 0.0, span.start
    for start, end in stretches:
        if span.overlap(start, end) > 0:
            longest = max(longest, start - known_until)
            known_until = max(known_until, end)
    return max(longest, span.end - known_until)


def _stretches(readings: Sequence[Reading]) -> list[tuple[float, float]]:
    """Return the stretch of time that each reading stands for: they do not overlap, and are in
    order.
    """
    edges = [readings[0].at - readings[0].interval_seconds / 2]
    for first, second in pairwise(readings):
        largest_gap = MAX_GAP_INTERVALS * max(first.interval_seconds, second.interval_seconds)
        if second.at - first.at <= largest_gap:
            middle = (first.at + second.at) / 2
            edges += [middle, middle]
        else:
            edges.append(first.at + first.interval_seconds / 2)
            edges.append(second.at - second.interval_seconds / 2)
    edges.append(readings[-1].at + readings[-1].interval_seconds / 2)
    return list(zip(edges[::2], edges[1::2], strict=True))
