"""Until when requests want to wait."""

import heapq
from collections.abc import Iterator
from datetime import datetime
from typing import Final
from uuid import UUID

from services.scheduler.domain.model.inputs import QueuedRequest
from services.scheduler.domain.model.state import State

SPARE_DEADLINES: Final = 64  # outdated ones that there may be beside as many as are current


class Deadlines:
    """Soonest first; those of requests that have left or changed are skipped."""

    def __init__(self, state: State) -> None:
        self._queue = state.queue
        self._heap: list[tuple[datetime, UUID]] = []

    def add(self, entry: QueuedRequest) -> None:
        heapq.heappush(self._heap, (entry.wait_deadline_at, entry.reservation_id))
        if len(self._heap) > 2 * len(self._queue) + SPARE_DEADLINES:
            waiting = self._queue.values()
            self._heap = [(entry.wait_deadline_at, entry.reservation_id) for entry in waiting]
            heapq.heapify(self._heap)

    @property
    def next_at(self) -> datetime | None:
        """The soonest of a request that waits."""
        while self._heap:
            at, reservation_id = self._heap[0]
            entry = self._queue.get(reservation_id)
            if entry is not None and entry.wait_deadline_at == at:
                return at
            heapq.heappop(self._heap)
        return None

    def take(self, now: datetime) -> Iterator[QueuedRequest]:
        """Requests past theirs, each to be ended."""
        while (at := self.next_at) is not None and at <= now:
            yield self._queue[heapq.heappop(self._heap)[1]]
