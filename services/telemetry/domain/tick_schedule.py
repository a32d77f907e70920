"""When the next tick is due. Times are monotonic seconds."""

import math
from dataclasses import dataclass


@dataclass(slots=True)
class TickGrid:
    """Slots for ticks at whole intervals after `started_at`; a slow tick does not shift them."""

    started_at: float
    interval_seconds: float
    last_slot: int = 0

    def next_slot(self, now: float) -> tuple[float, int]:
        """Take the first slot ahead: when it is due, and how many passed without a tick."""
        passed = math.floor((now - self.started_at) / self.interval_seconds)
        number = max(self.last_slot, passed) + 1
        missed, self.last_slot = number - self.last_slot - 1, number
        return self.started_at + number * self.interval_seconds, missed
