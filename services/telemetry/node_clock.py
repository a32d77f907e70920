"""The node's time, by which an agent dates what it tells."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from services.telemetry.domain.timeline import Timeline
from shared.logging import log


class NodeClock:
    """Both clocks are given by tests alone."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._timeline = Timeline(wall(), monotonic())

    def now(self) -> datetime:
        """Never earlier than what it told before."""
        told = self._timeline.tell(self._wall(), self._monotonic())
        if self._timeline.stepped_seconds:
            log.warning("clock_was_set", seconds=round(self._timeline.stepped_seconds, 3))
        return datetime.fromtimestamp(told, UTC)
