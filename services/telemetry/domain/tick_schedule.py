"""When the next tick is due."""

import math
from typing import NamedTuple


class Slot(NamedTuple):
    """A place in the schedule; `number` counts from 0 at the start."""

    number: int
    due_at: float


def next_slot(started_at: float, interval_seconds: float, now: float, last: int) -> Slot:
    """The first slot after `last` that is not over yet, on the grid that began at `started_at`.

    Slots that passed meanwhile are skipped, so a slow probe neither piles up nor shifts the grid.
    Times are monotonic seconds.
    """
    passed = math.floor((now - started_at) / interval_seconds)
    number = max(last + 1, passed + 1)
    return Slot(number, started_at + number * interval_seconds)
