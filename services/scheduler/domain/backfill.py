"""When and where a waiting request can start by what leases promise, so that others behind it keep
out of its way and may still use what it will not need until they are over.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from schemas.base import NodeId
from schemas.gpu_request import GpuRequest
from services.scheduler.domain.demand import Demand, Shape
from services.scheduler.domain.eligibility import DEFAULT_FREE_SHARE, room_of
from services.scheduler.domain.fleet import NOTHING, Device, Reading, Room
from services.scheduler.domain.placement import Scored, Weights, choose, score
from services.scheduler.domain.reach import Reach
from services.scheduler.domain.state import State
from services.scheduler.domain.views import NodeView, Views, is_in_service
from services.scheduler.domain.waiting import Claim, Part

FREE_ALREADY: Final = datetime.min.replace(tzinfo=UTC)
HOPES_KEPT: Final = 64  # nodes; where there are more of them everything is kept


class Coming(NamedTuple):
    """A device of a node, and from when it can be had."""

    at: datetime
    place: int
    number: int
    scored: Scored


class Outlook(NamedTuple):
    """A node's devices that one filter lets through, soonest first.

    `promised` are those whose leases tell their end. `hoped` has all, as if the leases that do not
    ended now.
    """

    view: NodeView
    promised: Sequence[Coming]
    hoped: Sequence[Coming]


Start = tuple[datetime, NodeId]
Outlooks = Mapping[NodeId, Outlook]


class Forecast:
    """Looks ahead at what leases promise; nothing else is counted on."""

    def __init__(self, state: State, views: Views, weights: Weights) -> None:
        self._state = state
        self._views = views
        self._weights = weights
        self._outlooks: dict[Reach, tuple[int, dict[NodeId, Outlook]]] = {}

    def claim(self, demand: Demand, reach: Reach) -> Claim:
        """What a request that has to wait keeps from those behind it.

        The devices on which it starts by what is promised, until then; and on nodes where leases
        that promise nothing could let it start earlier, everything that it could use. All that it
        could ever use where too little is promised, and for groups over several nodes whose memory
        is to be balanced.
        """
        shape = demand.shape
        if shape.balanced and shape.nodes > 1:
            return Claim()
        outlooks = self.outlooks(reach)
        chosen = self._promised(outlooks, demand)
        if len(chosen) < shape.nodes:
            return Claim()
        start = chosen[-1][0]
        hopes = _hopes(outlooks, shape, start)
        if len(hopes) > HOPES_KEPT:
            return Claim()
        parts: dict[NodeId, list[Part]] = {}
        for _, node_id, part in chosen:
            parts.setdefault(node_id, []).append(replace(part, until=start))
        for at, node_id in hopes:
            view = outlooks[node_id].view
            numbers = frozenset(view.devices[p].number for p in reach.usable(view))
            part = Part(numbers=numbers, aside=shape.room, until=at, is_hope=True)
            parts.setdefault(node_id, []).append(part)
        return Claim(start=start, parts={node_id: tuple(of) for node_id, of in parts.items()})

    def outlooks(self, reach: Reach) -> Outlooks:
        """By node, for those that have any device that the filter lets through."""
        synced, found = self._outlooks.get(reach, (-1, {}))
        changed = self._views.since(synced) if synced >= 0 else None
        if changed is None:
            found = {}
            changed = {view.node_id for view in self._views.candidates(reach.filter)}
        for node_id in changed:
            found.pop(node_id, None)
            view = self._views.nodes.get(node_id)
            if view is not None and reach.usable(view):
                found[node_id] = self._outlook(view, reach)
        self._outlooks[reach] = (self._views.log_end, found)
        return found

    def forget(self, kept: Mapping[Reach, object]) -> None:
        """Give back the memory of filters that nobody who waits has."""
        self._outlooks = {r: found for r, found in self._outlooks.items() if r in kept}

    def _outlook(self, view: NodeView, reach: Reach) -> Outlook:
        promised: list[Coming] = []
        hoped: list[Coming] = []
        for scored in reach.ready(view):
            device = scored.device
            coming = Coming(FREE_ALREADY, device.index, device.number, scored)
            promised.append(coming)
            hoped.append(coming)
        for device in held_in_time(view, reach):
            lease = self._state.lease_of(device.number)
            end = self._state.end_of(lease) if lease is not None else None
            scored = Scored(device, 0.0)
            if end is not None:
                promised.append(Coming(end, device.index, device.number, scored))
            at = FREE_ALREADY if end is None else end
            hoped.append(Coming(at, device.index, device.number, scored))
        promised.sort(key=_soonest)
        hoped.sort(key=_soonest)
        return Outlook(view, promised, hoped)

    def _promised(self, outlooks: Outlooks, demand: Demand) -> list[tuple[datetime, NodeId, Part]]:
        """The nodes that are promised soonest, with the devices; fewer if there are no more."""
        shape = demand.shape
        bounds = [
            (outlook.promised[shape.gpus - 1].at, node_id)
            for node_id, outlook in outlooks.items()
            if len(outlook.promised) >= shape.gpus
        ]
        if not shape.balanced and shape.room == NOTHING:
            return [
                (at, node_id, _part(outlooks[node_id].promised[: shape.gpus], NOTHING, at))
                for at, node_id in heapq.nsmallest(shape.nodes, bounds)
            ]
        heapq.heapify(bounds)
        exact: list[tuple[datetime, NodeId, Part]] = []
        found: list[tuple[datetime, NodeId, Part]] = []
        while len(found) < shape.nodes and (bounds or exact):
            if exact and (not bounds or exact[0][:2] <= bounds[0]):
                found.append(heapq.heappop(exact))
                continue
            _, node_id = heapq.heappop(bounds)
            start = self._start(outlooks[node_id], demand)
            if start is not None:
                heapq.heappush(exact, start)
        return found

    def _start(self, outlook: Outlook, demand: Demand) -> tuple[datetime, NodeId, Part] | None:
        """The node's earliest start for its part of a request that asks for more than devices."""
        shape, view, promised = demand.shape, outlook.view, outlook.promised
        for at in self._moments(outlook, shape.gpus):
            released = self._released(view, at)
            if not view.has_room(shape.room, _negative(released)):
                continue
            there = [coming for coming in promised if coming.at <= at]
            chosen = self._choose(there, demand.request)
            if chosen is not None:
                return at, view.node_id, _part(chosen, _beyond(shape.room, released), at)
        return None

    def _choose(self, there: Sequence[Coming], request: GpuRequest) -> Sequence[Coming] | None:
        if not request.balanced_memory:
            return there[: request.gpus]
        idle = tuple(
            self.as_idle(coming.scored.device) if coming.at != FREE_ALREADY else coming.scored
            for coming in there
        )
        chosen = choose(idle, request)
        if chosen is None:
            return None
        numbers = {scored.device.number for scored in chosen}
        return [coming for coming in there if coming.number in numbers]

    def as_idle(self, device: Device) -> Scored:
        """The device as it will be when its holder has gone."""
        total = device.total_mb
        idle = replace(
            device,
            reading=Reading(utilization_percent=0.0, memory_total_mb=total, memory_free_mb=total),
        )
        return Scored(idle, score(idle, self._weights))

    def _moments(self, outlook: Outlook, gpus: int) -> list[datetime]:
        first = outlook.promised[gpus - 1].at
        later = {coming.at for coming in outlook.promised if coming.at > first}
        ends = (self._state.end_of(lease) for lease in self._state.leases_on(outlook.view.node_id))
        later.update(end for end in ends if end is not None and end > first)
        return [first, *sorted(later)]

    def _released(self, view: NodeView, at: datetime) -> Room:
        """What leases will have given back of the node's CPUs and memory by then."""
        released = NOTHING
        for lease in self._state.leases_on(view.node_id):
            end = self._state.end_of(lease)
            if end is not None and end <= at:
                released = released.plus(room_of(lease.request))
        return released


def held_in_time(view: NodeView, reach: Reach) -> Iterator[Device]:
    """The node's held devices that would suit once their holders have gone."""
    asked = reach.filter.min_memory_mb
    for position in reach.usable(view):
        device = view.devices[position]
        total = device.total_mb
        if device.holder is None or total is None or not is_in_service(device, view.node):
            continue
        if (asked if asked is not None else total * DEFAULT_FREE_SHARE) <= total:
            yield device


def _hopes(outlooks: Outlooks, shape: Shape, start: datetime) -> list[Start]:
    """Nodes on which the request could start before that if leases ended that promise nothing."""
    hoped = [
        (outlook.hoped[shape.gpus - 1].at, node_id)
        for node_id, outlook in outlooks.items()
        if len(outlook.hoped) >= shape.gpus and outlook.hoped[shape.gpus - 1].at < start
    ]
    if len(hoped) < shape.nodes:
        return []
    together = heapq.nsmallest(shape.nodes, hoped)[-1][0]
    return [(max(at, together), node_id) for at, node_id in hoped]


def _part(chosen: Sequence[Coming], aside: Room, until: datetime) -> Part:
    return Part(numbers=frozenset(coming.number for coming in chosen), aside=aside, until=until)


def _soonest(coming: Coming) -> tuple[datetime, int, int]:
    return coming.at, coming.place, coming.number


def _negative(room: Room) -> Room:
    return Room(cpu_count=-room.cpu_count, memory_mb=-room.memory_mb)


def _beyond(room: Room, released: Room) -> Room:
    """What of it the released does not cover."""
    return Room(
        cpu_count=max(0.0, room.cpu_count - released.cpu_count),
        memory_mb=max(0, room.memory_mb - released.memory_mb),
    )
