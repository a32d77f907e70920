"""Nodes with devices that one filter lets through, in the order in which a placement prefers them.

A search inspects nodes that can serve it, best first, and stops when it has enough: neither full
nodes nor how many there are cost it anything.
"""

import heapq
from bisect import insort
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from schemas.base import NodeId
from schemas.gpus.gpu_request import GpuRequest, Placement
from services.scheduler.domain.indexes.index_entry import IndexEntry
from services.scheduler.domain.indexes.node_views import NodeView
from services.scheduler.domain.indexes.room_groups import Member, RoomGroups, longest
from services.scheduler.domain.placement.density import RoomCost
from services.scheduler.domain.placement.device_choice import (
    Chosen,
    Scored,
    best_first,
)
from services.scheduler.domain.placement.gpu_models import (
    Model,
    needs_one_model,
)
from services.scheduler.domain.placement.placement import (
    Fill,
    Preference,
    fill_order,
    preference,
    preference_weight,
)
from services.scheduler.domain.placement.topology import Closeness, Fit

Choose = Callable[["IndexEntry", Chosen], Chosen | None]


Order = tuple[int, float, int]  # distance, then fill; smallest first
Bound = tuple[Fit, float, NodeId, int, IndexEntry]


class _Tier:
    """Nodes that are as full and whose best GPUs are as near, in order of what is best on them.

    Replaced entries stay in the heap. `usable` is a lower bound over it; it is never raised, which
    costs a search, not a place.
    """

    __slots__ = ("heap", "usable")

    def __init__(self, usable: int) -> None:
        self.usable = usable
        self.heap: list[Bound] = []

    def put(self, usable: int, bound: Bound) -> None:
        """Add a node with so many usable devices."""
        if usable < self.usable:
            self.usable = usable
        heapq.heappush(self.heap, bound)


class _Ranking:
    """All nodes with so many GPUs ready, of one model or any, in tiers for each placement."""

    __slots__ = ("_gpus", "_model", "_tiers", "orders", "size")

    def __init__(self, gpus: int, model: Model | None, entries: Iterable[IndexEntry]) -> None:
        self._gpus = gpus
        self._model = model
        self._tiers: dict[tuple[int, Fill], _Tier] = {}
        self.orders: dict[Placement, list[tuple[Order, _Tier]]] = {p: [] for p in Placement}
        self.size = 0
        for entry in entries:
            self.put(entry)

    def put(self, whole_entry: IndexEntry) -> None:
        if (entry := whole_entry.ready_for(self._gpus, self._model)) is None:
            return
        _, (distance, fit), loss = entry.best(self._gpus)
        fill = entry.view.fill
        tier = self._tiers.get((distance, fill))
        if tier is None:
            tier = self._tiers[distance, fill] = _Tier(entry.usable)
            for placement, order in self.orders.items():
                insort(order, ((distance, *fill_order(fill, placement)), tier))
        tier.put(entry.usable, (fit, loss, entry.view.node_id, entry.serial, entry))
        self.size += 1

    def count_dropped(self, entries: int) -> None:
        """Note that so many replaced entries have left their heaps."""
        self.size -= entries


N = TypeVar("N", _Ranking, RoomGroups)


class _Search(NamedTuple):
    request: GpuRequest
    choose_on: Choose
    reserved_size: int
    cost: RoomCost | None


class NodeIndex:
    """The nodes that have devices which one filter lets through now, ranked for each number of
    GPUs that was requested.

    Correct as long as `put` is called for every changed node; `FilterIndex` does so before a
    search. A ranking, and groups by room, are built when their number is requested, and from then
    on every new entry is put into them, until too many are outdated; an entry is current only if it
    is that of `entries`.
    """

    def __init__(self) -> None:
        self.entries: dict[NodeId, IndexEntry] = {}
        self._rankings: dict[Model | None, dict[int, _Ranking]] = {}
        self._models: set[Model] = set()  # that there are, or once were
        self._groups: dict[Model | None, dict[int, RoomGroups]] = {}

    def put(self, node_id: NodeId, entry: IndexEntry | None) -> None:
        """Replace a node's entry; None if none of its devices can be taken."""
        entry_before = self.entries.pop(node_id, None)
        if entry is None:
            return
        self.entries[node_id] = entry
        if entry_before is None or entry_before.models is not entry.models:
            self._models.update(entry.models)
        most = longest(self.entries)
        for model in (None, *entry.models):
            if rankings := self._rankings.get(model):
                _put(rankings, entry, most)
            if groups := self._groups.get(model):
                _put(groups, entry, most)

    def find(
        self,
        request: GpuRequest,
        choose_on: Choose,
        reserved_size: int,
        cost: RoomCost | None = None,
    ) -> list[tuple[NodeId, Chosen]]:
        """The best nodes, as many as requested; fewer if there are not so many.

        `choose_on` picks the devices of one node, or None; it would be None for every node with
        `whole_node_size` usable devices or more. With a `cost`, what costs least is best.
        """
        search = _Search(request, choose_on, reserved_size, cost)
        if not needs_one_model(request):
            return self._find(search, None)
        options = [self._find(search, model) for model in sorted(self._models)]
        enough = [option for option in options if len(option) == request.nodes]
        if len(enough) < 2:
            return enough[0] if enough else []
        return min(enough, key=lambda option: self._orders(search, option))

    def _orders(
        self, search: _Search, option: list[tuple[NodeId, Chosen]]
    ) -> list[tuple[Preference, NodeId]]:
        return [
            (
                preference(
                    self.entries[node_id].view.fill,
                    devices,
                    search.request.placement,
                    self.entries[node_id].judge(devices).closeness,
                    _cost_on(search, self.entries[node_id].view),
                ),
                node_id,
            )
            for node_id, devices in option
        ]

    def _find(self, search: _Search, model: Model | None) -> list[tuple[NodeId, Chosen]]:
        if search.request.prefer:
            return self._find_preferred(search, model)
        if search.cost is not None:
            return self._find_cheapest(search, search.cost, model)
        gpus, rankings = search.request.gpus, self._rankings.setdefault(model, {})
        ranking = rankings.get(gpus)
        if ranking is None:
            ranking = rankings[gpus] = _Ranking(gpus, model, self.entries.values())
        return self._find_ranked(search, ranking, model)

    def _entries_of(self, model: Model | None) -> Iterable[tuple[NodeId, IndexEntry]]:
        if model is None:
            return self.entries.items()
        entries = (
            (node_id, whole_entry.of(model)) for node_id, whole_entry in self.entries.items()
        )
        return ((node_id, entry) for node_id, entry in entries if entry is not None)

    def _find_ranked(
        self, search: _Search, ranking: _Ranking, model: Model | None
    ) -> list[tuple[NodeId, Chosen]]:
        """The order is by the best devices of each node. Where reservations leave less than those,
        the node waits in `lesser` under its real place until no better one can follow.
        """
        request, choose_on, reserved_size, *_ = search
        gpus, nodes_wanted = request.gpus, request.nodes
        choices: list[tuple[NodeId, Chosen]] = []
        lesser: list[tuple[Order, Fit, float, NodeId, Chosen]] = []
        for order, tier in ranking.orders[request.placement]:
            heap = tier.heap
            if not heap or tier.usable >= reserved_size:
                continue
            inspected: list[Bound] = []
            dropped = 0
            while heap and len(choices) < nodes_wanted:
                fit, loss, node_id, _, entry = heap[0]
                if lesser and lesser[0][:4] < (order, fit, loss, node_id):
                    *_, node_id, lesser_devices = heapq.heappop(lesser)
                    choices.append((node_id, lesser_devices))
                    continue
                bound = heapq.heappop(heap)
                whole_entry = self.entries.get(node_id)
                if whole_entry is not entry and (
                    whole_entry is None or whole_entry.of(model) is not entry
                ):
                    dropped += 1
                    continue
                inspected.append(bound)
                if (devices := choose_on(entry, entry.ready)) is None:
                    continue
                best = entry.best(gpus)
                if devices is not best.devices and (real := entry.judge(devices))[1:] != best[1:]:
                    distance, real_fit = real.closeness
                    at = (distance, *order[1:])
                    heapq.heappush(lesser, (at, real_fit, real.loss, node_id, devices))
                else:
                    choices.append((node_id, devices))
            for bound in inspected:
                heapq.heappush(heap, bound)
            ranking.count_dropped(dropped)
            if len(choices) == nodes_wanted:
                return choices
        return choices + [
            order[-2:] for order in heapq.nsmallest(nodes_wanted - len(choices), lesser)
        ]

    def _find_cheapest(
        self, search: _Search, cost: RoomCost, model: Model | None
    ) -> list[tuple[NodeId, Chosen]]:
        """Find as `_find_ranked` does, by room: costs do not follow the order of the tiers."""
        request, choose_on, *_ = search
        by_gpus = self._groups.setdefault(model, {})
        groups = by_gpus.get(request.gpus)
        if groups is None:
            groups = by_gpus[request.gpus] = RoomGroups(request.gpus, model, self.entries)
        heap = groups.by_cost(cost)
        choices: list[tuple[NodeId, Chosen]] = []
        inspected: list[tuple[list[Member], Member]] = []
        lesser: list[tuple[int, float, Fill, Fit, float, NodeId, Chosen]] = []
        while (heap or lesser) and len(choices) < request.nodes:
            if lesser and (not heap or lesser[0][:6] < heap[0][:6]):
                *_, node_id, lesser_devices = heapq.heappop(lesser)
                choices.append((node_id, lesser_devices))
                continue
            distance, price, fill, fit, loss, node_id, _, entry, members = heapq.heappop(heap)
            member = heapq.heappop(members)
            if members:
                heapq.heappush(heap, (distance, price, *members[0], members))
            if not groups.is_current(member):
                continue
            inspected.append((members, member))
            if (devices := choose_on(entry, entry.ready)) is None:
                continue
            if (real := entry.judge(devices))[1:] == (Closeness(distance, fit), loss):
                choices.append((node_id, devices))
            else:
                distance, fit = real.closeness
                heapq.heappush(lesser, (distance, price, fill, fit, real.loss, node_id, devices))
        for members, member in inspected:
            heapq.heappush(members, member)
        return choices

    def _find_preferred(self, search: _Search, model: Model | None) -> list[tuple[NodeId, Chosen]]:
        request, choose_on, *_ = search
        ranked: list[tuple[Preference, NodeId, Chosen]] = []
        for node_id, entry in self._entries_of(model):
            if len(entry.ready) < request.gpus:
                continue
            view = entry.view
            preferred = best_first(
                Scored(s.device, s.score, preference_weight(s.device, request, view.node))
                for s in entry.ready
            )
            devices = choose_on(entry, preferred)
            if devices is not None:
                closeness = entry.judge(devices).closeness
                price = _cost_on(search, view)
                order = preference(view.fill, devices, request.placement, closeness, price)
                ranked.append((order, node_id, devices))
        best = heapq.nsmallest(request.nodes, ranked, key=lambda ranked_choice: ranked_choice[:2])
        return [(node_id, devices) for _, node_id, devices in best]


def _cost_on(search: _Search, view: NodeView) -> float:
    return search.cost(view.room) if search.cost is not None else 0.0


def _put(by_gpus: dict[int, N], entry: IndexEntry, most: int) -> None:
    """Put a node's new entry where it belongs; what holds more than `most` is dropped instead, to
    be made anew.
    """
    for gpus, nodes in tuple(by_gpus.items()):
        if nodes.size < most:
            nodes.put(entry)
        else:
            del by_gpus[gpus]
