"""Requests that wait: in order, in groups that are alike, with what is kept for each group's first.

What a group keeps binds those behind it, not those before it.
"""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct

from schemas.base import NodeId
from schemas.gpu_request import GpuRequest
from services.scheduler.domain.demand import Demand, Rank, Shape
from services.scheduler.domain.fleet import NOTHING, Room
from services.scheduler.domain.inputs import QueuedRequest
from services.scheduler.domain.reach import Reach
from services.scheduler.domain.views import NodeView, Views

MORE_THAN_ANY: Final = 1 << 30


class Part(Struct, frozen=True, kw_only=True):
    """What is kept of one node from those that would not be over by `until`: devices, and `aside`
    of what is free of its CPUs and memory now. `is_hope`: it might start there earlier.
    """

    numbers: frozenset[int]
    until: datetime
    aside: Room = NOTHING
    is_hope: bool = False


class Claim(Struct, frozen=True):
    """What is kept for a group's first request.

    With a `start` its `parts`. Without, every device that it could ever take, since nobody can tell
    on which it will start; `by_hopes` if there are only too many on which it might.
    """

    start: datetime | None = None
    by_hopes: bool = False
    parts: Mapping[NodeId, tuple[Part, ...]] = {}


class Group:
    """Requests of one shape, first in rank first. What is kept for the first serves them all."""

    __slots__ = ("claim", "claim_rank", "entries", "fits_for", "reach", "request", "shape")

    def __init__(self, shape: Shape, reach: Reach, request: GpuRequest) -> None:
        self.shape = shape
        self.reach = reach
        self.request = request
        self.entries: list[tuple[Rank, QueuedRequest]] = []
        self.fits_for = -1  # the latest question for which it was known to fit some day
        self.claim: Claim | None = None
        self.claim_rank: Rank = (0, 0, 0)  # the first request's when the claim was made

    @property
    def rank(self) -> Rank:
        """The first request's place."""
        return self.entries[0][0]

    @property
    def last_rank(self) -> Rank:
        """The last request's place."""
        return self.entries[-1][0]

    @property
    def head(self) -> QueuedRequest:
        """The first request."""
        return self.entries[0][1]

    def at(self, rank: Rank) -> QueuedRequest | None:
        """The request of that rank as it is now."""
        place = bisect_left(self.entries, rank, key=itemgetter(0))
        if place == len(self.entries) or self.entries[place][0] != rank:
            return None
        return self.entries[place][1]

    def next_shorter(self, after: Rank, seconds: float) -> Rank | None:
        """The first request behind that rank that is expected to take less than that."""
        begin = bisect_right(self.entries, after, key=itemgetter(0))
        for rank, entry in islice(self.entries, begin, None):
            expected = entry.request.expected_duration_seconds
            if expected is not None and expected < seconds:
                return rank
        return None


class Kept(NamedTuple):
    """Devices of a node that are kept for a group's first request.

    `is_open`: it may start on them any time.
    """

    group: Group
    numbers: Iterable[int]
    is_open: bool


class Waiting:
    """All groups. `reaches_on` a node lists the filters with waiting requests that use it."""

    def __init__(self, views: Views) -> None:
        self.groups: dict[Shape, Group] = {}
        self._views = views
        self._ranks: list[Rank] = []
        self._places: dict[UUID, tuple[Rank, Group]] = {}
        self._by_reach: dict[Reach, dict[int, dict[Shape, Group]]] = {}
        self._by_kind: dict[int, dict[Reach, None]] = {}
        self._by_node: dict[NodeId, dict[Reach, None]] = {}
        self._timed: dict[NodeId, dict[Group, tuple[Part, ...]]] = {}
        self._open: dict[Reach, dict[int, list[tuple[Rank, Group]]]] = {}
        self._specific: dict[Reach, None] = {}
        self._kinds_seen = 0

    def __len__(self) -> int:
        return len(self._ranks)

    @property
    def filters(self) -> int:
        """How many different filters the requests have."""
        return len(self._by_reach)

    def uses(self, reach: Reach) -> bool:
        """Whether a request with this filter waits."""
        return reach in self._by_reach

    def in_order(self) -> Iterator[QueuedRequest]:
        """All requests, first in rank first."""
        merged = heapq.merge(*(group.entries for group in self.groups.values()), key=itemgetter(0))
        return (entry for _, entry in merged)

    def place(self, reservation_id: UUID) -> tuple[Rank, Group] | None:
        """A request's rank and group."""
        return self._places.get(reservation_id)

    def position(self, rank: Rank) -> int:
        """How many are before this rank, and one."""
        return bisect_left(self._ranks, rank) + 1

    def add(self, rank: Rank, entry: QueuedRequest, shape: Shape, reach: Reach) -> Group:
        """A request waits from now on; its group, without a claim if the request is its first."""
        group = self.groups.get(shape)
        if group is None:
            group = self.groups[shape] = Group(shape, reach, entry.request)
            self._register(group)
        elif rank < group.rank:
            self.set_claim(group, None)
        insort(group.entries, (rank, entry), key=itemgetter(0))
        insort(self._ranks, rank)
        self._places[entry.reservation_id] = (rank, group)
        return group

    def remove(self, reservation_id: UUID) -> Group | None:
        """It waits no longer; its group, without a claim if it was the first.

        A group that has nobody left is none any more, but tells what it was.
        """
        found = self._places.pop(reservation_id, None)
        if found is None:
            return None
        rank, group = found
        del self._ranks[bisect_left(self._ranks, rank)]
        place = bisect_left(group.entries, rank, key=itemgetter(0))
        del group.entries[place]
        if place == 0:
            self.set_claim(group, None)
        if not group.entries:
            del self.groups[group.shape]
            self._unregister(group)
        return group

    def set_claim(self, group: Group, claim: Claim | None) -> None:
        """What is kept for the group from now on."""
        before, shape = group.claim, group.shape
        if before is not None and before.start is None:
            self._close(group)
        elif before is not None:
            for node_id in before.parts:
                parts = self._timed[node_id]
                del parts[group]
                if not parts:
                    del self._timed[node_id]
        group.claim = claim
        if claim is None:
            return
        group.claim_rank = group.rank
        if claim.start is None:
            opened = self._open.setdefault(group.reach, {}).setdefault(shape.gpus, [])
            insort(opened, (group.claim_rank, group), key=itemgetter(0))
            return
        for node_id, parts_there in claim.parts.items():
            self._timed.setdefault(node_id, {})[group] = parts_there

    def notice(self) -> None:
        """Look at nodes that are not what they were, and at new kinds: which filters use them?"""
        for kind in range(self._kinds_seen, len(self._views.kinds)):
            for reach in self._by_reach:
                if not reach.is_specific and reach.usable(self._views.kinds[kind]):
                    self._by_kind.setdefault(kind, {})[reach] = None
        self._kinds_seen = len(self._views.kinds)
        for node_id in self._views.remade:
            view = self._views.nodes.get(node_id)
            for reach in self._specific:
                self._use_node(reach, node_id, is_used=bool(view and reach.usable(view)))
        self._views.remade.clear()

    def reaches_on(self, view: NodeView) -> Iterator[Reach]:
        """Filters of waiting requests that let some of the node's devices through."""
        yield from self._by_kind.get(view.kind, ())
        yield from self._by_node.get(view.node_id, ())

    def groups_on(self, view: NodeView) -> Iterator[Group]:
        """Groups that could start on the node some day."""
        for reach in self.reaches_on(view):
            usable = len(reach.usable(view))
            for gpus, groups in self._by_reach[reach].items():
                if gpus <= usable:
                    yield from groups.values()

    def outgrown(self, node_id: NodeId, view: NodeView | None) -> list[Group]:
        """Groups for which something is kept on a node that is gone or too small for them now."""
        return [
            group
            for group in self._timed.get(node_id, ())
            if view is None or len(group.reach.usable(view)) < group.shape.gpus
        ]

    def kept(self, view: NodeView, rank: Rank, ends_at: datetime | None) -> Iterator[Kept]:
        """Devices of the node that those before this rank keep from what ends at that moment."""
        for group, part in self._timed_before(view, rank, ends_at):
            yield Kept(group, part.numbers, part.is_hope)
        for reach in self.reaches_on(view):
            opened = self._open.get(reach)
            if not opened:
                continue
            usable = reach.usable(view)
            firsts = [groups[0] for gpus, groups in opened.items() if gpus <= len(usable)]
            first = min(firsts, key=itemgetter(0), default=None)
            if first is not None and first[0] < rank:
                numbers = [view.devices[position].number for position in usable]
                yield Kept(first[1], numbers, is_open=True)

    def kept_from(self, demand: Demand, reach: Reach) -> int:
        """Nodes with so many devices that its filter could ever let through are kept whole by
        others before it, who have the same filter.
        """
        opened = self._open.get(reach, {})
        firsts = (gpus for gpus, groups in opened.items() if groups[0][0] < demand.rank)
        return min(firsts, default=MORE_THAN_ANY)

    def behind(self, claim: Claim | None, group: Group, rank: Rank) -> Iterator[Group]:
        """Groups with requests after this rank that use nodes which the claim is about."""
        if claim is None or not self._ranks or self._ranks[-1] <= rank:
            return
        nodes = self._views.nodes
        if claim.start is not None:
            reaches = {r for n in claim.parts if n in nodes for r in self.reaches_on(nodes[n])}
        else:
            reaches = self._sharing(group.reach)
        for reach in reaches:
            for groups in self._by_reach[reach].values():
                yield from (other for other in groups.values() if other.last_rank > rank)

    def has_claims_on(self, view: NodeView) -> bool:
        """Whether anything may be kept of the node."""
        return bool(self._open) or view.node_id in self._timed

    def set_aside(self, view: NodeView, rank: Rank, ends_at: datetime | None) -> Room:
        """The most that one of those before this rank needs of the node's CPUs and memory that are
        free now.
        """
        rooms = [part.aside for _, part in self._timed_before(view, rank, ends_at)]
        rooms += [
            group.shape.room
            for reach in self.reaches_on(view)
            if reach in self._open
            for gpus, groups in self._open[reach].items()
            if gpus <= len(reach.usable(view))
            for group_rank, group in groups
            if group_rank < rank
        ]
        return Room(
            cpu_count=max((room.cpu_count for room in rooms), default=0.0),
            memory_mb=max((room.memory_mb for room in rooms), default=0),
        )

    def _sharing(self, reach: Reach) -> set[Reach]:
        """Filters that let through devices of nodes of which this one does too."""
        found: set[Reach] = set()
        for node_id, reaches in self._by_node.items():
            view = self._views.nodes.get(node_id)
            if reaches and view is not None and reach.usable(view):
                found.update(self.reaches_on(view))
        if not reach.is_specific:
            for kind, reaches in self._by_kind.items():
                if reach.usable(self._views.kinds[kind]):
                    found.update(reaches)
        return found

    def _timed_before(
        self, view: NodeView, rank: Rank, ends_at: datetime | None
    ) -> Iterator[tuple[Group, Part]]:
        for group, parts in self._timed.get(view.node_id, _NONE).items():
            if group.claim_rank < rank:
                for part in parts:
                    if ends_at is None or ends_at > part.until:
                        yield group, part

    def _close(self, group: Group) -> None:
        by_gpus = self._open[group.reach]
        opened = by_gpus[group.shape.gpus]
        del opened[bisect_left(opened, group.claim_rank, key=itemgetter(0))]
        if not opened:
            del by_gpus[group.shape.gpus]
        if not by_gpus:
            del self._open[group.reach]

    def _register(self, group: Group) -> None:
        reach = group.reach
        by_gpus = self._by_reach.get(reach)
        if by_gpus is None:
            by_gpus = self._by_reach[reach] = {}
            self._use(reach)
        by_gpus.setdefault(group.shape.gpus, {})[group.shape] = group

    def _use(self, reach: Reach) -> None:
        if reach.is_specific:
            self._specific[reach] = None
            for view in self._views.candidates(reach.filter):
                if reach.usable(view):
                    self._use_node(reach, view.node_id, is_used=True)
            return
        for kind in range(self._kinds_seen):
            if reach.usable(self._views.kinds[kind]):
                self._by_kind.setdefault(kind, {})[reach] = None

    def _use_node(self, reach: Reach, node_id: NodeId, *, is_used: bool) -> None:
        if is_used:
            self._by_node.setdefault(node_id, {})[reach] = None
        else:
            self._by_node.get(node_id, {}).pop(reach, None)

    def _unregister(self, group: Group) -> None:
        reach, gpus = group.reach, group.shape.gpus
        by_gpus = self._by_reach[reach]
        del by_gpus[gpus][group.shape]
        if not by_gpus[gpus]:
            del by_gpus[gpus]
        if by_gpus:
            return
        del self._by_reach[reach]
        self._specific.pop(reach, None)
        places = self._by_node if reach.is_specific else self._by_kind
        for reaches in places.values():
            reaches.pop(reach, None)


_NONE: Final[dict[Group, tuple[Part, ...]]] = {}
