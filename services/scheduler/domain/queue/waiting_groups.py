"""Waiting requests in groups of one shape and namespace, and what the first of each reserves.

A reservation binds the requests behind its group, not those before it.
"""

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

from schemas.base import NodeId
from services.scheduler.domain.indexes.filter_index import FilterIndex
from services.scheduler.domain.indexes.node_views import NodeView, NodeViews
from services.scheduler.domain.model.fleet import NO_HOST_RESOURCES, HostResources
from services.scheduler.domain.model.inputs import QueuedRequest
from services.scheduler.domain.placement.gpu_models import Positions, Size
from services.scheduler.domain.placement.request_shape import Rank, RankedRequest, Seniority, Shape
from services.scheduler.domain.queue.waiting_group import (
    BackfillReservation,
    NodeReservation,
    WaitingGroup,
)

MORE_THAN_ANY: Final = 1 << 30

GroupKey = tuple[Shape, str]  # with the namespace


class Reserved(NamedTuple):
    """Devices of a node reserved for a group's first request; `optimistic`: to start any time."""

    group: WaitingGroup
    numbers: Iterable[int]
    optimistic: bool


class WaitingGroups:
    """All groups, found by shape, by filter and by the nodes that their filters use.

    A filter that names no node sees nodes of one kind alike, so it is listed once by kind
    (`_by_kind`), a specific one by node (`_by_node`). Both stay correct because kinds only grow
    (new ones are checked in `refresh_filters`), and because a node whose identity changed is in
    `NodeViews.remade` and checked against every specific filter. A filter is listed from its first
    group to its last, in `by_filter`. Reservations are listed where a search meets them: those with
    a shadow time by node (`_timed`), those without by filter and size (`_untimed`), as they cover
    every node that the filter uses. `set_backfill` is the only place that changes either.
    """

    def __init__(self, views: NodeViews) -> None:
        self.groups: dict[GroupKey, WaitingGroup] = {}
        self.by_namespace: dict[str, dict[Shape, WaitingGroup]] = {}
        self._views = views
        self.is_contended = False  # groups rank by more than seniority
        self.priorities: Counter[int] = Counter()
        self._seniorities: list[Seniority] = []
        self.places: dict[UUID, tuple[Seniority, WaitingGroup]] = {}
        self.by_filter: dict[FilterIndex, dict[Size, dict[GroupKey, WaitingGroup]]] = {}
        self._by_kind: dict[int, dict[FilterIndex, None]] = {}
        self._by_node: dict[NodeId, dict[FilterIndex, None]] = {}
        self._timed: dict[NodeId, dict[WaitingGroup, tuple[NodeReservation, ...]]] = {}
        self._untimed: dict[FilterIndex, dict[Size, list[tuple[Rank, WaitingGroup]]]] = {}
        self._kinds_seen = 0

    def __len__(self) -> int:
        return len(self._seniorities)

    def has_rivals(self) -> bool:
        """True if more than one namespace waits; requests without one do not count."""
        return len(self.by_namespace) - ("" in self.by_namespace) > 1

    def update_contention(self) -> bool:
        """Note whether groups rank by more than seniority from now on, and return it."""
        self.is_contended = self.has_rivals()
        return self.is_contended

    def in_order(self) -> Iterator[QueuedRequest]:
        """Yield all requests, first in rank first."""
        merged = heapq.merge(
            *(group.rank_entries() for group in self.groups.values()), key=itemgetter(0)
        )
        return (entry for _, entry in merged)

    def add(
        self, seniority: Seniority, entry: QueuedRequest, shape: Shape, filter_index: FilterIndex
    ) -> WaitingGroup:
        """Add a request; its group, without a reservation if the request is its first."""
        namespace = entry.namespace
        group = self.groups.get((shape, namespace))
        if group is None:
            group = WaitingGroup(shape, filter_index, entry.request, namespace)
            self.groups[shape, namespace] = group
            self.by_namespace.setdefault(namespace, {})[shape] = group
            self._register(group)
        elif seniority < group.entries[0][0]:
            self.set_backfill(group, None)
        insort(group.entries, (seniority, entry), key=itemgetter(0))
        insort(self._seniorities, seniority)
        self.places[entry.reservation_id] = (seniority, group)
        self.priorities[entry.request.priority] += 1
        return group

    def remove(self, reservation_id: UUID) -> WaitingGroup | None:
        """Remove a request; its group, without a reservation if it was the first, maybe empty."""
        removed_place = self.places.pop(reservation_id, None)
        if removed_place is None:
            return None
        seniority, group = removed_place
        del self._seniorities[bisect_left(self._seniorities, seniority)]
        place = bisect_left(group.entries, seniority, key=itemgetter(0))
        priority = group.entries.pop(place)[1].request.priority
        self.priorities[priority] -= 1
        if not self.priorities[priority]:
            del self.priorities[priority]
        if place == 0:
            self.set_backfill(group, None)
        if not group.entries:
            del self.groups[group.shape, group.namespace]
            groups = self.by_namespace[group.namespace]
            del groups[group.shape]
            if not groups:
                del self.by_namespace[group.namespace]
            self._unregister(group)
        return group

    def set_backfill(self, group: WaitingGroup, backfill: BackfillReservation | None) -> None:
        """Reserve this for the group, in place of what was."""
        reservation_before, shape = group.backfill, group.shape
        if reservation_before is not None and reservation_before.shadow_time is None:
            by_size = self._untimed[group.filter_index]
            untimed = by_size[shape.size]
            del untimed[bisect_left(untimed, group.backfill_rank, key=itemgetter(0))]
            if not untimed:
                del by_size[shape.size]
            if not by_size:
                del self._untimed[group.filter_index]
        elif reservation_before is not None:
            for node_id in reservation_before.by_node:
                by_node = self._timed[node_id]
                del by_node[group]
                if not by_node:
                    del self._timed[node_id]
        group.reserve(backfill)
        if backfill is None:
            return
        if backfill.shadow_time is None:
            untimed = self._untimed.setdefault(group.filter_index, {}).setdefault(shape.size, [])
            insort(untimed, (group.backfill_rank, group), key=itemgetter(0))
            return
        for node_id, parts_there in backfill.by_node.items():
            self._timed.setdefault(node_id, {})[group] = parts_there

    def refresh_filters(self) -> None:
        """Update which filters use new kinds and nodes that have changed their identity."""
        for kind in range(self._kinds_seen, len(self._views.kinds)):
            for filter_index in self.by_filter:
                if not filter_index.is_specific and filter_index.usable(self._views.kinds[kind]):
                    self._by_kind.setdefault(kind, {})[filter_index] = None
        self._kinds_seen = len(self._views.kinds)
        specific = [filter_index for filter_index in self.by_filter if filter_index.is_specific]
        for node_id in self._views.remade:
            view = self._views.nodes.get(node_id)
            for filter_index in specific:
                if view is not None and filter_index.usable(view):
                    self._by_node.setdefault(node_id, {})[filter_index] = None
                elif node_id in self._by_node:
                    self._by_node[node_id].pop(filter_index, None)
        self._views.remade.clear()

    def filters_on(self, view: NodeView) -> Iterator[FilterIndex]:
        """Filters of waiting requests that let some of the node's devices through."""
        yield from self._by_kind.get(view.kind, ())
        yield from self._by_node.get(view.node_id, ())

    def groups_on(self, view: NodeView) -> Iterator[WaitingGroup]:
        """Groups that could start on the node some day."""
        for filter_index in self.filters_on(view):
            usable = filter_index.usable_devices(view)
            for size, groups in self.by_filter[filter_index].items():
                if usable.for_size(size):
                    yield from groups.values()

    def reserving_on(self, node_id: NodeId) -> Iterable[WaitingGroup]:
        """Groups that have a reservation with a shadow time on the node, also if it is gone."""
        return self._timed.get(node_id, ())

    def reservations_on(
        self, view: NodeView, rank: Rank, ends_at: datetime | None
    ) -> Iterator[Reserved]:
        """Yield what groups before this rank reserve of the node against a request ending then."""
        for group, reservation in self._find_timed(view, rank, ends_at):
            yield Reserved(group, reservation.numbers, reservation.optimistic)
        for filter_index in self.filters_on(view):
            untimed = self._untimed.get(filter_index)
            if not untimed:
                continue
            usable = filter_index.usable_devices(view)
            firsts: dict[Positions, tuple[Rank, WaitingGroup]] = {}
            for size, groups in untimed.items():
                positions = usable.for_size(size)
                if positions and groups[0][0] < rank:
                    firsts[positions] = min(
                        firsts.get(positions, groups[0]), groups[0], key=itemgetter(0)
                    )
            for positions, (_, group) in firsts.items():
                numbers = [view.devices[position].number for position in positions]
                yield Reserved(group, numbers, optimistic=True)

    def device_numbers_reserved(
        self, view: NodeView, rank: Rank, ends_at: datetime | None
    ) -> set[int]:
        """The devices of `reservations_on`."""
        reserved = self.reservations_on(view, rank, ends_at)
        return {number for reservation in reserved for number in reservation.numbers}

    def whole_node_size(self, ranked: RankedRequest, filter_index: FilterIndex) -> int:
        """Return from how many usable devices of each model a node is reserved whole by earlier
        groups of the filter.

        They are those without a shadow time; the search skips such nodes without inspecting them.
        """
        untimed = self._untimed.get(filter_index, {})
        firsts = (size.gpus for size, groups in untimed.items() if groups[0][0] < ranked.rank)
        return min(firsts, default=MORE_THAN_ANY)

    def groups_behind(
        self, backfill: BackfillReservation | None, group: WaitingGroup, rank: Rank
    ) -> Iterator[WaitingGroup]:
        """Groups with requests after this rank that use the reservation's nodes."""
        if backfill is None or not self._seniorities:
            return
        if not self.is_contended and self._seniorities[-1] <= rank[1:]:
            return
        nodes = self._views.nodes
        if backfill.shadow_time is not None:
            filter_indexes = {
                r for n in backfill.by_node if n in nodes for r in self.filters_on(nodes[n])
            }
        else:
            filter_indexes = self._sharing(group.filter_index)
        for filter_index in filter_indexes:
            for groups in self.by_filter[filter_index].values():
                yield from (other for other in groups.values() if other.last_rank > rank)

    def has_reserved_on(self, view: NodeView) -> bool:
        """Return True if anything may be reserved on the node."""
        return bool(self._untimed) or view.node_id in self._timed

    def host_reserved(self, view: NodeView, rank: Rank, ends_at: datetime | None) -> HostResources:
        """The most that one group before this rank reserves of the node's free host resources."""
        reserved = [NO_HOST_RESOURCES]
        reserved += [
            reservation.host_resources for _, reservation in self._find_timed(view, rank, ends_at)
        ]
        reserved += [
            group.shape.host_resources
            for filter_index in self.filters_on(view)
            if filter_index in self._untimed
            for size, groups in self._untimed[filter_index].items()
            if filter_index.usable_devices(view).for_size(size)
            for group_rank, group in groups
            if group_rank < rank
        ]
        return HostResources(
            cpu_count=max(host_resources.cpu_count for host_resources in reserved),
            memory_mb=max(host_resources.memory_mb for host_resources in reserved),
        )

    def _sharing(self, filter_index: FilterIndex) -> set[FilterIndex]:
        """Filters that use a node which this one uses too."""
        sharing_indexes: set[FilterIndex] = set()
        for node_id, filter_indexes in self._by_node.items():
            view = self._views.nodes.get(node_id)
            if filter_indexes and view is not None and filter_index.usable(view):
                sharing_indexes.update(self.filters_on(view))
        if not filter_index.is_specific:
            for kind, filter_indexes in self._by_kind.items():
                if filter_index.usable(self._views.kinds[kind]):
                    sharing_indexes.update(filter_indexes)
        return sharing_indexes

    def _find_timed(
        self, view: NodeView, rank: Rank, ends_at: datetime | None
    ) -> Iterator[tuple[WaitingGroup, NodeReservation]]:
        for group, by_node in self._timed.get(view.node_id, _NONE).items():
            if group.backfill_rank < rank:
                for reservation in by_node:
                    if ends_at is None or ends_at > reservation.until:
                        yield group, reservation

    def _register(self, group: WaitingGroup) -> None:
        filter_index = group.filter_index
        by_size = self.by_filter.get(filter_index)
        if by_size is None:
            by_size = self.by_filter[filter_index] = {}
            self._use(filter_index)
        by_size.setdefault(group.shape.size, {})[group.shape, group.namespace] = group

    def _use(self, filter_index: FilterIndex) -> None:
        if filter_index.is_specific:
            for view in self._views.candidates(filter_index.filter):
                if filter_index.usable(view):
                    self._by_node.setdefault(view.node_id, {})[filter_index] = None
            return
        for kind in range(self._kinds_seen):
            if filter_index.usable(self._views.kinds[kind]):
                self._by_kind.setdefault(kind, {})[filter_index] = None

    def _unregister(self, group: WaitingGroup) -> None:
        filter_index, size = group.filter_index, group.shape.size
        by_size = self.by_filter[filter_index]
        del by_size[size][group.shape, group.namespace]
        if not by_size[size]:
            del by_size[size]
        if by_size:
            return
        del self.by_filter[filter_index]
        places = self._by_node if filter_index.is_specific else self._by_kind
        for filter_indexes in places.values():
            filter_indexes.pop(filter_index, None)


_NONE: Final[dict[WaitingGroup, tuple[NodeReservation, ...]]] = {}
