"""Groups of requests that have to be looked at, first in rank first."""

import heapq
from itertools import count
from math import inf

from services.scheduler.domain.demand import Rank
from services.scheduler.domain.inputs import QueuedRequest
from services.scheduler.domain.waiting import Group


class Agenda:
    """Each group once, from its first request on.

    Of a group that has no place for one request, those behind it can only have one if they would
    be over sooner: only they are looked at.
    """

    def __init__(self) -> None:
        self._noted: dict[Group, Rank] = {}
        self._heap: list[tuple[Rank, int, bool, float, Group, QueuedRequest]] = []
        self._serial = count()

    def note(self, *groups: Group) -> None:
        """Look at these, from their first requests on."""
        for group in groups:
            if group.entries and self._noted.get(group) != group.rank:
                self._push(group, group.rank, group.head, inf, is_first=True)

    def add(self, group: Group, rank: Rank, entry: QueuedRequest) -> None:
        """Look at one that has come; those before it have no place."""
        if group in self._noted:
            self.note(group)
        else:
            self._push(group, rank, entry, 0.0)

    def go_on(self, group: Group, after: Rank, shorter_than: float) -> None:
        """Look at the next request of the group that would be over sooner than that."""
        if group in self._noted:
            return
        following = group.next_shorter(after, shorter_than)
        if following is not None:
            self._push(group, *following, shorter_than)

    def next(self) -> tuple[Group, Rank, QueuedRequest, float] | None:
        """The first of them, taken off, with the limit for those behind it."""
        while self._heap:
            rank, _, is_first, shorter_than, group, entry = heapq.heappop(self._heap)
            if self._noted.get(group) != rank:
                continue
            del self._noted[group]
            if not group.entries:
                continue
            if is_first and group.rank != rank:
                self.note(group)
                continue
            return group, rank, entry, shorter_than
        return None

    def _push(
        self,
        group: Group,
        rank: Rank,
        entry: QueuedRequest,
        shorter_than: float,
        *,
        is_first: bool = False,
    ) -> None:
        self._noted[group] = rank
        heapq.heappush(self._heap, (rank, next(self._serial), is_first, shorter_than, group, entry))
