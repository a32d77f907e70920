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
            if not group.entries:
                continue
            noted = self._noted.get(group)
            if noted is None or not noted.is_first or noted.rank != group.rank:
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

    def has_any(self, before: Rank) -> bool:
        """Whether anybody before that place is to be looked at."""
        while self._heap and self._heap[0].rank < before:
            item, group = self._heap[0], self._heap[0].group
            is_noted = self._noted.get(group) is item and bool(group.entries)
            if is_noted and (not item.is_first or item.rank == group.rank):
                return True
            self._drop(heapq.heappop(self._heap))
            if is_noted:
                self.note(group)
        return False

    def next(self, before: Rank) -> Item | None:
        """The first of them, taken off, if it is before that place."""
        if not self.has_any(before):
            return None
        item = heapq.heappop(self._heap)
        self._drop(item)
        return item

    def _drop(self, item: Item) -> None:
        if self._noted.get(item.group) is item:
            del self._noted[item.group]

    def _push(
        self, group: Group, rank: Rank, shorter_than: float, *, is_first: bool = False
    ) -> None:
        item = Item(rank, next(self._serial), group, shorter_than, is_first)
        self._noted[group] = item
        heapq.heappush(self._heap, item)
