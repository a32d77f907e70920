"""Groups of requests that have to be looked at, first in rank first."""

import heapq
from itertools import count

from services.scheduler.domain.demand import Rank
from services.scheduler.domain.waiting import Group


class Agenda:
    """Each group once, under the rank of its first request at that time."""

    def __init__(self) -> None:
        self._noted: dict[Group, Rank] = {}
        self._heap: list[tuple[Rank, int, Group]] = []
        self._serial = count()

    def note(self, *groups: Group) -> None:
        """Look at these."""
        for group in groups:
            if group.entries and self._noted.get(group) != group.rank:
                self._noted[group] = group.rank
                heapq.heappush(self._heap, (group.rank, next(self._serial), group))

    def next(self) -> Group | None:
        """The first of them, taken off; None if there is none."""
        while self._heap:
            rank, _, group = heapq.heappop(self._heap)
            if self._noted.get(group) != rank:
                continue
            del self._noted[group]
            if not group.entries:
                continue
            if group.rank == rank:
                return group
            self.note(group)
        return None
