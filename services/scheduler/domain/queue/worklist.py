"""The worklist of a scheduling cycle: waiting groups to evaluate, first in rank first."""

import heapq
from itertools import count
from math import inf
from typing import NamedTuple

from services.scheduler.domain.placement.request_shape import Rank
from services.scheduler.domain.queue.waiting_group import WaitingGroup


class WorkItem(NamedTuple):
    """Evaluate a group's requests from this rank on.

    Only those that take less than `shorter_than` seconds. `is_first`: from whichever request is the
    group's first by then. `serial` makes items comparable without comparing groups.
    """

    rank: Rank
    serial: int
    group: WaitingGroup
    shorter_than: float
    is_first: bool


class Worklist:
    """Each group at most once, from its first request on.

    Requests of a group have one shape, so if one has no place, those behind it lack it too: what is
    reserved against it is reserved against them. The exception is a shorter one, which may be over
    before a reservation begins; so `add_next` goes on with the next shorter request alone, and
    skips any number of others. A group whose first request has changed or left since is found
    outdated when it comes up, and added again from its new first request.
    """

    def __init__(self) -> None:
        self._items: dict[WaitingGroup, WorkItem] = {}
        self._heap: list[WorkItem] = []  # with outdated items, which are not those of `_items`
        self._serial = count()

    def add(self, *groups: WaitingGroup) -> None:
        """Evaluate these from their first requests on."""
        for group in groups:
            if not group.entries:
                continue
            item = self._items.get(group)
            if item is None or not item.is_first or item.rank != group.rank:
                self._push(group, group.rank, inf, is_first=True)

    def add_from(self, group: WaitingGroup, rank: Rank) -> None:
        """Evaluate a request that has come; those of its group before it have no place."""
        if group in self._items:
            self.add(group)
        else:
            self._push(group, rank, 0.0)

    def add_next(self, group: WaitingGroup, rank: Rank, shorter_than: float) -> None:
        """Evaluate the group's next request that is shorter than this, unless it starts over."""
        if group in self._items:
            return
        following = group.next_shorter(rank, shorter_than)
        if following is not None:
            self._push(group, following, shorter_than)

    def pop(self, limit: Rank) -> WorkItem | None:
        """The first item, taken off, if it is before that rank."""
        while self._heap and self._heap[0].rank < limit:
            item = heapq.heappop(self._heap)
            group = item.group
            if self._items.get(group) is not item:
                continue
            del self._items[group]
            if group.entries and (not item.is_first or item.rank == group.rank):
                return item
            self.add(group)
        return None

    def _push(
        self, group: WaitingGroup, rank: Rank, shorter_than: float, *, is_first: bool = False
    ) -> None:
        item = WorkItem(rank, next(self._serial), group, shorter_than, is_first)
        self._items[group] = item
        heapq.heappush(self._heap, item)
