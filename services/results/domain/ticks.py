"""Which ticks of an agent are known, as stretches of consecutive ones."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

# Beyond this many stretches the oldest gaps are given up: what comes for them later is left out.
MAX_STRETCHES: Final = 1000
STRETCHES_LEFT: Final = 500

Stretch = tuple[int, int]  # the first tick and the one behind the last


def is_in(stretches: Sequence[Stretch], tick: int) -> bool:
    """`stretches` are sorted and apart from each other."""
    if not stretches or tick >= stretches[-1][1]:
        return False  # as nearly always
    place = bisect_right(stretches, tick, key=lambda stretch: stretch[0])
    return place > 0 and tick < stretches[place - 1][1]


def stretches_of(ticks: Sequence[int]) -> list[Stretch]:
    """Join sorted ticks into stretches."""
    firsts = [
        ticks[0],
        *(current for previous, current in pairwise(ticks) if current != previous + 1),
    ]
    lasts = [
        *(previous for previous, current in pairwise(ticks) if current != previous + 1),
        ticks[-1],
    ]
    return [(first, last + 1) for first, last in zip(firsts, lasts, strict=True)]


def give_up_gaps(stretches: Sequence[Stretch]) -> tuple[list[Stretch], int]:
    """Fill the oldest gaps where there are too many; return the stretches and how many ticks were
    missing there.
    """
    if len(stretches) <= MAX_STRETCHES:
        return [], 0
    filled = stretches[: len(stretches) - STRETCHES_LEFT]
    oldest = (filled[0][0], filled[-1][1])
    return [oldest], oldest[1] - oldest[0] - sum(end - first for first, end in filled)
