"""Which ticks of an agent are known, as stretches of consecutive ones."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

# Beyond this many stretches the oldest gaps are given up: what comes for them later is left out.
MOST_STRETCHES: Final = 1000
STRETCHES_LEFT: Final = 500

Stretch = tuple[int, int]  # the first tick and the one behind the last


def is_in(stretches: Sequence[Stretch], tick: int) -> bool:
    """`stretches` are sorted and apart from each other."""
    place = bisect_right(stretches, tick, key=lambda stretch: stretch[0])
    return place > 0 and tick < stretches[place - 1][1]


def stretches_of(ticks: Sequence[int]) -> list[Stretch]:
    """Of sorted ticks."""
    firsts = [ticks[0], *(after for before, after in pairwise(ticks) if after != before + 1)]
    lasts = [*(before for before, after in pairwise(ticks) if after != before + 1), ticks[-1]]
    return [(first, last + 1) for first, last in zip(firsts, lasts, strict=True)]


def given_up_gaps(stretches: Sequence[Stretch]) -> tuple[list[Stretch], int]:
    """What fills the oldest gaps where there are too many, and how many ticks are missing there."""
    if len(stretches) <= MOST_STRETCHES:
        return [], 0
    filled = stretches[: len(stretches) - STRETCHES_LEFT]
    whole = (filled[0][0], filled[-1][1])
    return [whole], whole[1] - whole[0] - sum(end - first for first, end in filled)
