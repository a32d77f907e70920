"""The node's time, which dates samples and events."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from services.telemetry.domain.monotonic_clock import MonotonicClock
from shared.logging import log


class NodeClock:
    """Only tests pass clocks."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._time = MonotonicClock(wall(), monotonic())

    def now(self) -> datetime:
        """Never earlier than in a former call."""
        seconds = self._time.read(self._wall(), self._monotonic())
        if self._time.stepped_seconds:
            log.warning("clock_was_set", seconds=round(self._time.stepped_seconds, 3))
        return datetime.fromtimestamp(seconds, UTC)
