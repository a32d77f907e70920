"""Where a GPU is chosen: finds by indexes the place that `placement.place` finds by scanning.

Grants use this, explanations the scan: a reason is due for every device, an index skips most.
tests/unit/scheduler/placement/test_search.py holds the two equal.
"""

from functools import partial
from typing import Final
from uuid import UUID

from schemas.base import NodeId
from schemas.gpus.gpu_request import GpuRequest, Placement
from services.scheduler.domain.indexes.filter_index import FilterIndex
from services.scheduler.domain.indexes.index_entry import IndexEntry
from services.scheduler.domain.indexes.node_index import Choose, NodeIndex
from services.scheduler.domain.indexes.node_views import NodeView, NodeViews
from services.scheduler.domain.model.demand import Demand
from services.scheduler.domain.model.fleet import NO_HOST_RESOURCES, HostResources
from services.scheduler.domain.model.state import State
from services.scheduler.domain.placement.density import Density, RoomCost, class_of, demand_of
from services.scheduler.domain.placement.device_choice import Chosen, Scored, choose
from services.scheduler.domain.placement.eligibility import is_large_enough
from services.scheduler.domain.placement.gpu_models import count_alike
from services.scheduler.domain.placement.placement import (
    Cost,
    Placed,
    PlacementContext,
    no_cost,
    place_among,
    place_shares,
    preference_weight,
)
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.placement.request_shape import Filter, RankedRequest, Shape
from services.scheduler.domain.queue.waiting_groups import WaitingGroups

MAX_NODE_INDEXES: Final = 64
MAX_FILTER_INDEXES: Final = 256


class PlacementSearch:
    """Searches the devices that a request may take now, through the index of its filter.

    Filter indexes live as long as a request with the filter waits, and a bounded number beyond;
    node indexes are a bounded number of the latest used. Each catches up with changed nodes when it
    is used (`NodeViews.since`), so an unused one costs nothing.
    """

    def __init__(
        self, state: State, views: NodeViews, waiting: WaitingGroups, policy: Policy
    ) -> None:
        self._state = state
        self._views = views
        self._waiting = waiting
        self._policy = policy
        self._filter_indexes: dict[Filter, FilterIndex] = {}
        self._indexed: dict[FilterIndex, None] = {}
        self._demand: Demand | None = None
        self._density = Density(demand_of({})) if policy.density else None

    def filter_index(self, filter_: Filter, request: GpuRequest) -> FilterIndex:
        """The index of the filter; the same object as long as a request with it waits."""
        filter_index = self._filter_indexes.get(filter_)
        if filter_index is None:
            if len(self._filter_indexes) >= MAX_FILTER_INDEXES + 2 * len(self._waiting.by_filter):
                self._forget()
            filter_index = self._filter_indexes[filter_] = FilterIndex(filter_, request)
        return filter_index

    def place(self, ranked: RankedRequest) -> Placed | None:
        """The devices to grant now, or None if there is no place for all of them."""
        request, shape = ranked.request, ranked.shape
        filter_index = self.filter_index(shape.filter, request)
        if shape.shares is not None:
            return self._place_shares(ranked, filter_index)
        reserved_size = self._waiting.whole_node_size(ranked, filter_index)
        if reserved_size <= shape.gpus and (shape.one_model or shape.gpus == 1):
            return None
        index = self._index(filter_index)
        chooser = self._chooser(ranked, reserved_size)
        choices = index.find(request, chooser, reserved_size, self._room_cost(request))
        if len(choices) < shape.nodes:
            return None
        placed = Placed.on(choices)
        if shape.balanced and shape.nodes > 1 and not placed.has_balanced_memory:
            return self._place_balanced(ranked, index)
        return placed

    def can_ever_fit(self, shape: Shape, request: GpuRequest) -> bool:
        """Return True if the fleet could serve the request if nothing of it were held or out of
        order.
        """
        filter_index, able = self.filter_index(shape.filter, request), []
        for view in self._views.candidates(shape.filter):
            usable = filter_index.usable_devices(view)
            if not usable.for_size(shape.size) or not is_large_enough(view.node, request):
                continue
            if shape.nodes == 1:
                return True
            able.append(usable)
        if not shape.one_model:
            return len(able) >= shape.nodes
        return count_alike(usable.models_with(shape.gpus) for usable in able) >= shape.nodes

    def context(self, ranked: RankedRequest) -> PlacementContext:
        """The same reservations as plain data, for `placement.place` and explanations."""
        optimistic: dict[int, UUID] = {}
        reserved: dict[int, UUID] = {}
        host_reserved: dict[NodeId, HostResources] = {}
        for node_id, view in self._views.nodes.items():
            held_back = self._waiting.reservations_on(view, ranked.rank, ranked.ends_at)
            for reserved_devices in sorted(
                held_back, key=lambda reserved: reserved.group.backfill_rank
            ):
                whose = reserved_devices.group.head.reservation_id
                for number in reserved_devices.numbers:
                    (optimistic if reserved_devices.optimistic else reserved).setdefault(
                        number, whose
                    )
            host_reserved[node_id] = self._host_reserved(view, ranked)
        return PlacementContext(
            fleet=self._state.fleet(),
            optimistic=optimistic,
            promised=reserved,
            host_reserved=host_reserved,
            weights=self._policy.weights,
            share_quantum=self._policy.share_quantum,
            density=self._density_now(),
        )

    def _place_shares(self, ranked: RankedRequest, filter_index: FilterIndex) -> Placed | None:
        """Inspects every node with enough free; its devices are known until it changes."""
        request, shape = ranked.request, ranked.shape
        hundredths = shape.shares.hundredths if shape.shares is not None else 0
        candidates: dict[NodeId, Chosen] = {}
        for view in self._views.candidates(shape.filter):
            shareable, free = filter_index.shareable(view, self._policy.weights)
            if free < hundredths or not view.has_host_resources(
                shape.host_resources, self._host_reserved(view, ranked)
            ):
                continue
            if self._waiting.has_reserved_on(view):
                shareable = self._without_reserved(shareable, view, ranked)
            if request.prefer:
                shareable = tuple(
                    Scored(s.device, s.score, preference_weight(s.device, request, view.node))
                    for s in shareable
                )
            candidates[view.node_id] = shareable
        return place_shares(
            candidates,
            request,
            self._policy.share_quantum,
            lambda node_id: self._views.nodes[node_id].node,
            self._cost_of(request),
        )

    def _density_now(self) -> Density | None:
        demand = self._state.demand
        if self._density is not None and demand is not None and demand is not self._demand:
            self._demand, self._density = demand, Density(demand)
        return self._density

    def _room_cost(self, request: GpuRequest) -> RoomCost | None:
        """Return the cost of a place by its room; None where no density decides."""
        density = self._density_now()
        if density is None or request.placement is not Placement.PACK:
            return None
        return partial(density.cost, demand=class_of(request))

    def _cost_of(self, request: GpuRequest) -> Cost:
        """`PlacementContext.cost_of`."""
        room_cost, views = self._room_cost(request), self._views.nodes
        if room_cost is None:
            return no_cost
        return lambda node_id, parts=(): room_cost(views[node_id].room, parts=parts)

    def _chooser(self, ranked: RankedRequest, reserved_size: int) -> Choose:
        waiting, shape, request = self._waiting, ranked.shape, ranked.request
        gpus, host_resources = shape.gpus, shape.host_resources
        asks_room = host_resources != NO_HOST_RESOURCES

        def choose_on(entry: IndexEntry, ready: Chosen) -> Chosen | None:
            view = entry.view
            if entry.usable >= reserved_size or (
                asks_room and not view.has_host_resources(host_resources, NO_HOST_RESOURCES)
            ):
                return None
            if waiting.has_reserved_on(view):
                ready = self._without_reserved(ready, view, ranked)
                if len(ready) < gpus:
                    return None
                if asks_room and not view.has_host_resources(
                    host_resources, self._host_reserved(view, ranked)
                ):
                    return None
            if ready is entry.ready and not shape.balanced:
                return entry.best(gpus).devices
            return choose(ready, request, view.topology)

        return choose_on

    def _without_reserved(self, ready: Chosen, view: NodeView, ranked: RankedRequest) -> Chosen:
        reserved_numbers = self._waiting.device_numbers_reserved(view, ranked.rank, ranked.ends_at)
        return (
            tuple(s for s in ready if s.device.number not in reserved_numbers)
            if reserved_numbers
            else ready
        )

    def _host_reserved(self, view: NodeView, ranked: RankedRequest) -> HostResources:
        if not self._waiting.has_reserved_on(view):
            return NO_HOST_RESOURCES
        return self._waiting.host_reserved(view, ranked.rank, ranked.ends_at)

    def _place_balanced(self, ranked: RankedRequest, index: NodeIndex) -> Placed | None:
        """Scans all: no index holds which nodes have similar free memory."""
        candidates: dict[NodeId, Chosen] = {}
        for node_id, entry in index.entries.items():
            view = entry.view
            free = self._without_reserved(entry.ready, view, ranked)
            if len(free) >= ranked.shape.gpus and view.has_host_resources(
                ranked.shape.host_resources, self._host_reserved(view, ranked)
            ):
                candidates[node_id] = free
        devices = {node_id: self._views.nodes[node_id].devices for node_id in candidates}
        cost = self._cost_of(ranked.request)
        return place_among(devices, candidates, ranked.request, cost)

    def _index(self, filter_index: FilterIndex) -> NodeIndex:
        self._indexed.pop(filter_index, None)
        self._indexed[filter_index] = None
        if len(self._indexed) > MAX_NODE_INDEXES:
            oldest = next(iter(self._indexed))
            del self._indexed[oldest]
            oldest.forget_index()
        return filter_index.node_index(self._views)

    def _forget(self) -> None:
        """Drop filters that no waiting request has; they are built again when needed."""
        used = self._waiting.by_filter
        self._filter_indexes = {
            f: index for f, index in self._filter_indexes.items() if index in used
        }
        self._indexed = {index: None for index in self._indexed if index in used}
