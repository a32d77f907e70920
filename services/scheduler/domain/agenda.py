"""Groups of requests that have to be looked at, first in rank first."""

import heapq
from itertools import count
from math import inf
from typing import NamedTuple

from services.scheduler.domain.demand import Rank
from services.scheduler.domain.waiting import Group


class Item(NamedTuple):
    """A group is to be looked at from this rank on; `serial` tells one item from every other.

    Of those behind only the ones that take less than `shorter_than` seconds. `is_first`: from
    whoever is its first request by then.
    """

    rank: Rank
    serial: int
    group: Group
    shorter_than: float
    is_first: bool


class Agenda:
    """Each group once, from its first request on.

    Of a group that has no place for one request, those behind it can only have one if they would
    be over sooner: only they are looked at.
    """

    def __init__(self) -> None:
        self._noted: dict[Group, Item] = {}
        self._heap: list[Item] = []
        self._serial = count()

    def note(self, *groups: Group) -> None:
        """Look at these, from their first requests on."""
        for group in groups:
            noted = self._noted.get(group)
            is_noted = noted is not None and noted.is_first and noted.rank == group.rank
            if group.entries and not is_noted:
                self._push(group, group.rank, inf, is_first=True)

    def add(self, group: Group, rank: Rank) -> None:
        """Look at one that has come; those before it have no place."""
        if group in self._noted:
            self.note(group)
        else:
            self._push(group, rank, 0.0)

    def go_on(self, group: Group, after: Rank, shorter_than: float) -> None:
        """Look at the next request of the group that would be over sooner than that."""
        if group in self._noted:
            return
        following = group.next_shorter(after, shorter_than)
        if following is not None:
            self._push(group, following, shorter_than)

    def next(self) -> Item | None:
        """The first of them, taken off."""
        while self._heap:
            item = heapq.heappop(self._heap)
            group = item.group
            if self._noted.get(group) is not item:
                continue
            del self._noted[group]
            if not group.entries:
                continue
            if item.is_first and group.rank != item.rank:
                self.note(group)
                continue
            return item
        return None

    def _push(
        self, group: Group, rank: Rank, shorter_than: float, *, is_first: bool = False
    ) -> None:
        item = Item(rank, next(self._serial), group, shorter_than, is_first)
        self._noted[group] = item
        heapq.heappush(self._heap, item)
