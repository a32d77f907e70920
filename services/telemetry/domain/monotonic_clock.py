"""Wall-clock time that never runs backwards, whatever is done to the clock."""

from typing import Final

CATCH_UP_RATE: Final = 0.1
STEP_SECONDS: Final = 0.5


class MonotonicClock:
    """The wall clock where it goes forward.

    A step forward is followed at once. After a step back time goes on at a tenth of its speed until
    the clock has caught up: samples stay in their order, and after a step back by a minute the time
    is right again after 67 s. Seconds are since the epoch and monotonic ones.
    """

    def __init__(self, wall: float, monotonic: float) -> None:
        self._last = wall
        self._wall = wall
        self._monotonic = monotonic
        self.stepped_seconds = 0.0

    def read(self, wall: float, monotonic: float) -> float:
        """The time now; `stepped_seconds` becomes how far the clock was set since the last call."""
        passed = max(0.0, monotonic - self._monotonic)
        stepped = wall - self._wall - passed
        self.stepped_seconds = stepped if abs(stepped) >= STEP_SECONDS else 0.0
        self._wall, self._monotonic = wall, monotonic
        self._last = max(wall, self._last + passed * CATCH_UP_RATE)
        return self._last
