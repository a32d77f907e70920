"""Finds places by the indexes, as `placement.place` would by looking at everything."""

from typing import Final
from uuid import UUID

from schemas.base import NodeId
from schemas.gpu_request import GpuRequest
from services.scheduler.domain.demand import Demand, Filter, Rank, Shape
from services.scheduler.domain.eligibility import host_blocks
from services.scheduler.domain.fleet import NOTHING, Host, Room
from services.scheduler.domain.indexes import Chosen, Entry, Index, Judge
from services.scheduler.domain.placement import (
    Look,
    Placed,
    PlacedNode,
    choose,
    free_mb,
    is_balanced,
    place_among,
)
from services.scheduler.domain.policy import Policy
from services.scheduler.domain.reach import Reach
from services.scheduler.domain.state import State
from services.scheduler.domain.views import NodeView, Views
from services.scheduler.domain.waiting import Kept, Waiting

INDEXES_KEPT: Final = 64
REACHES_KEPT: Final = 256


class Search:
    """Searches the fleet for what a request may take now."""

    def __init__(self, state: State, views: Views, waiting: Waiting, policy: Policy) -> None:
        self._state = state
        self._views = views
        self._waiting = waiting
        self._policy = policy
        self._reaches: dict[Filter, Reach] = {}
        self._indexed: dict[Reach, None] = {}

    def reach(self, filter_: Filter, request: GpuRequest) -> Reach:
        """What the filter lets through; the same object as long as a request with it waits."""
        found = self._reaches.get(filter_)
        if found is None:
            if len(self._reaches) >= REACHES_KEPT + 2 * self._waiting.filters:
                self._forget()
            found = self._reaches[filter_] = Reach(filter_, request)
        return found

    def place(self, demand: Demand) -> Placed | None:
        """The devices to grant now, or None if there is no place for all of them."""
        request, shape = demand.request, demand.shape
        reach = self.reach(shape.filter, request)
        kept_from = self._waiting.kept_from(demand, reach)
        if kept_from <= shape.gpus:
            return None
        index = self._index(reach)
        found = index.find(request, self._judge(demand, kept_from), kept_from)
        if len(found) < shape.nodes:
            return None
        placed = Placed(
            nodes=tuple(PlacedNode(node_id=node_id, devices=chosen) for node_id, chosen in found)
        )
        if shape.balanced and shape.nodes > 1 and not _is_balanced(placed):
            return self._place_balanced(demand, index)
        return placed

    def can_ever_fit(self, shape: Shape, request: GpuRequest) -> bool:
        """Whether the fleet could serve the request if nothing of it were held or out of order."""
        reach, nodes = self.reach(shape.filter, request), 0
        for view in self._views.candidates(shape.filter):
            if len(reach.usable(view)) < shape.gpus:
                continue
            if next(host_blocks(Host(node=view.node), request, NOTHING), None) is None:
                nodes += 1
                if nodes == shape.nodes:
                    return True
        return False

    def look(self, demand: Demand) -> Look:
        """All that the request is judged against, to explain it by."""
        claimed: dict[int, UUID] = {}
        kept: dict[int, UUID] = {}
        set_aside: dict[NodeId, Room] = {}
        for node_id, view in self._views.nodes.items():
            held_back = self._waiting.kept(view, demand.rank, demand.ends_at)
            for each in sorted(held_back, key=_first_in_rank):
                whose = each.group.head.reservation_id
                for number in each.numbers:
                    (claimed if each.is_open else kept).setdefault(number, whose)
            set_aside[node_id] = self._set_aside(view, demand)
        return Look(
            fleet=self._state.fleet(),
            claimed=claimed,
            kept=kept,
            set_aside=set_aside,
            weights=self._policy.weights,
        )

    def _judge(self, demand: Demand, kept_from: int) -> Judge:
        waiting, shape, request = self._waiting, demand.shape, demand.request
        gpus, room = shape.gpus, shape.room
        asks_room = room != NOTHING

        def judge(entry: Entry, ready: Chosen) -> Chosen | None:
            view = entry.view
            if entry.usable >= kept_from or (asks_room and not view.has_room(room, NOTHING)):
                return None
            if waiting.has_claims_on(view):
                ready = _without(ready, self._taken(view, demand))
                if len(ready) < gpus:
                    return None
                if asks_room and not view.has_room(room, self._set_aside(view, demand)):
                    return None
            if shape.balanced:
                return choose(ready, request)
            return ready[:gpus] if len(ready) >= gpus else None

        return judge

    def _taken(self, view: NodeView, demand: Demand) -> set[int]:
        taken: set[int] = set()
        for each in self._waiting.kept(view, demand.rank, demand.ends_at):
            taken.update(each.numbers)
        return taken

    def _set_aside(self, view: NodeView, demand: Demand) -> Room:
        if not self._waiting.has_claims_on(view):
            return NOTHING
        return self._waiting.set_aside(view, demand.rank, demand.ends_at)

    def _place_balanced(self, demand: Demand, index: Index) -> Placed | None:
        """Looks at everything: which nodes suit each other cannot be kept in an index."""
        candidates: dict[NodeId, Chosen] = {}
        for node_id, entry in index.entries.items():
            view = entry.view
            free = _without(entry.ready, self._taken(view, demand))
            if len(free) >= demand.shape.gpus and view.has_room(
                demand.shape.room, self._set_aside(view, demand)
            ):
                candidates[node_id] = free
        devices = {node_id: self._views.nodes[node_id].devices for node_id in candidates}
        return place_among(devices, candidates, demand.request)

    def _index(self, reach: Reach) -> Index:
        self._indexed.pop(reach, None)
        self._indexed[reach] = None
        if len(self._indexed) > INDEXES_KEPT:
            oldest = next(iter(self._indexed))
            del self._indexed[oldest]
            oldest.forget_index()
        return reach.index(self._views)

    def _forget(self) -> None:
        """Filters that nobody who waits has are worked out anew when they come again."""
        kept = {f: reach for f, reach in self._reaches.items() if self._waiting.uses(reach)}
        self._reaches = kept
        self._indexed = {reach: None for reach in self._indexed if reach.filter in kept}


def _first_in_rank(kept: Kept) -> Rank:
    return kept.group.claim_rank


def _without(ready: Chosen, taken: set[int]) -> Chosen:
    if not taken:
        return ready
    return tuple(scored for scored in ready if scored.device.number not in taken)


def _is_balanced(placed: Placed) -> bool:
    free = [free_mb(scored) for scored in placed.devices]
    return is_balanced(min(free), max(free))
