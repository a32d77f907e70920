"""Nodes with equal room together: a place on any of them costs the same, whatever is requested."""

import heapq
from collections.abc import Mapping
from typing import Final

from schemas.base import NodeId
from services.scheduler.domain.indexes.index_entry import IndexEntry
from services.scheduler.domain.placement.density import Room, RoomCost
from services.scheduler.domain.placement.gpu_models import Model
from services.scheduler.domain.placement.placement import Fill
from services.scheduler.domain.placement.topology import Fit

SPARE_ENTRIES: Final = 64  # outdated ones that may stay beside as many as are current

# Fill, fit, loss: smallest first.
Member = tuple[Fill, Fit, float, NodeId, int, IndexEntry]
# Distance and cost of a group, then its first member.
Bound = tuple[int, float, Fill, Fit, float, NodeId, int, IndexEntry, list[Member]]


def longest(entries: Mapping[NodeId, IndexEntry]) -> int:
    """Return how many entries, outdated ones among them, may stay before all are put in anew."""
    return 2 * len(entries) + SPARE_ENTRIES


class RoomGroups:
    """The nodes that have a number of devices ready, of one model or of any.

    A group is a heap of members; only a change of the node itself makes one outdated.
    """

    def __init__(
        self, gpus: int, model: Model | None, entries: Mapping[NodeId, IndexEntry]
    ) -> None:
        self._gpus = gpus
        self._model = model
        self._entries = entries
        self._groups: dict[tuple[int, Room], list[Member]] = {}
        self.size = 0
        for entry in entries.values():
            self.put(entry)

    def put(self, whole_entry: IndexEntry) -> None:
        """Take a node's new entry."""
        if (entry := whole_entry.ready_for(self._gpus, self._model)) is None:
            return
        _, (distance, fit), loss = entry.best(self._gpus)
        view = entry.view
        member = (view.fill, fit, loss, view.node_id, entry.serial, entry)
        heapq.heappush(self._groups.setdefault((distance, view.room), []), member)
        self.size += 1

    def is_current(self, member: Member) -> bool:
        """Return whether a member's node has not changed since it was put in."""
        *_, node_id, _, entry = member
        current = self._entries.get(node_id)
        return current is not None and current.of(self._model) is entry

    def by_cost(self, cost: RoomCost) -> list[Bound]:
        """Return a heap of the groups by their first members, which are current. Who takes one from
        its group puts the group's next one into the heap.
        """
        bounds: list[Bound] = []
        for key, members in list(self._groups.items()):
            while members and not self.is_current(members[0]):
                heapq.heappop(members)
            if not members:
                del self._groups[key]
                continue
            distance, room = key
            bounds.append((distance, cost(room), *members[0], members))
        heapq.heapify(bounds)
        return bounds
