"""When and where a waiting request can start by what leases promise, so that others behind it keep
out of its way and may still use what it will not need until they are over.
"""

import heapq
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Final

from msgspec.structs import replace

from schemas.base import NodeId
from schemas.gpu_request import GpuRequest
from services.scheduler.domain.demand import Shape
from services.scheduler.domain.fleet import NOTHING, Device, Reading, Room
from services.scheduler.domain.outlook import FREE_ALREADY, Coming, Outlook, Schedule
from services.scheduler.domain.placement import Scored, Weights, choose, score
from services.scheduler.domain.reach import Reach
from services.scheduler.domain.state import State
from services.scheduler.domain.views import NodeView, Views
from services.scheduler.domain.waiting import Claim, Group, Part

HOPES_KEPT: Final = 64  # nodes; where there are more of them everything is kept
SCHEDULES_KEPT: Final = 64
MICROSECOND: Final = timedelta(microseconds=1)

Promise = tuple[datetime, NodeId, Part]


class Forecast:
    """Looks ahead at what leases promise; nothing else is counted on."""

    def __init__(self, state: State, views: Views, weights: Weights) -> None:
        self._state = state
        self._views = views
        self._weights = weights
        self._schedules: dict[Reach, Schedule] = {}

    def claim(self, group: Group) -> Claim:
        """What a group that has to wait keeps from those behind it.

        The devices on which its first request starts by what is promised, until then; and on nodes
        where leases that promise nothing could let it start earlier, everything that it could use.
        All that it could ever use where too little is promised, and for requests over several nodes
        whose memory is to be balanced.
        """
        shape, reach = group.shape, group.reach
        if shape.balanced and shape.nodes > 1:
            return Claim()
        schedule = self._schedule(reach)
        promises = self._promises(schedule, group)
        if len(promises) < shape.nodes:
            return Claim()
        start = promises[-1][0]
        hopes = _hopes(schedule, shape, start)
        if len(hopes) > HOPES_KEPT:
            return Claim(by_hopes=True)
        parts: dict[NodeId, tuple[Part, ...]] = {
            node_id: (replace(part, until=_kept_until(at, start)),)
            for at, node_id, part in promises
        }
        for at, node_id in hopes:
            view = schedule.nodes[node_id].view
            numbers = frozenset(view.devices[p].number for p in reach.usable(view))
            part = Part(numbers=numbers, aside=shape.room, until=at, is_hope=True)
            parts[node_id] = (*parts.get(node_id, ()), part)
        return Claim(start=start, parts=parts)

    def may_change(self, group: Group, view: NodeView) -> bool:
        """Whether what the group keeps may be otherwise because of this node's new state."""
        claim, gpus = group.claim, group.shape.gpus
        if claim is None or claim.by_hopes or group.shape.nodes > 1 or view.node_id in claim.parts:
            return True
        outlook = self._schedule(group.reach).nodes.get(view.node_id)
        if outlook is None or len(outlook.hoped) < gpus:
            return False
        if claim.start is not None and outlook.hoped[gpus - 1].at > claim.start:
            return False
        if claim.start is None or outlook.hoped[gpus - 1].at == claim.start:
            return len(outlook.promised) >= gpus and self._promise(outlook, group) is not None
        return True

    def as_idle(self, device: Device) -> Scored:
        """The device as it will be when its holder has gone."""
        total = device.total_mb
        idle = replace(
            device,
            reading=Reading(utilization_percent=0.0, memory_total_mb=total, memory_free_mb=total),
        )
        return Scored(idle, score(idle, self._weights))

    def _schedule(self, reach: Reach) -> Schedule:
        schedule = self._schedules.pop(reach, None) or Schedule(self._state, reach)
        self._schedules[reach] = schedule
        if len(self._schedules) > SCHEDULES_KEPT:
            del self._schedules[next(iter(self._schedules))]
        schedule.sync(self._views)
        return schedule

    def _promises(self, schedule: Schedule, group: Group) -> list[Promise]:
        """The nodes that are promised soonest, with the devices; fewer if there are no more."""
        shape = group.shape
        with schedule.promised(shape.gpus) as nodes:
            if not shape.balanced and shape.room == NOTHING:
                return [
                    (
                        at,
                        node_id,
                        _part(schedule.nodes[node_id].promised[: shape.gpus], NOTHING, at),
                    )
                    for at, node_id, _ in islice(nodes, shape.nodes)
                ]
            exact: list[Promise] = []
            found: list[Promise] = []
            for at, node_id, _ in nodes:
                while exact and exact[0][:2] < (at, node_id) and len(found) < shape.nodes:
                    found.append(heapq.heappop(exact))
                if len(found) == shape.nodes:
                    return found
                promise = self._promise(schedule.nodes[node_id], group)
                if promise is not None:
                    heapq.heappush(exact, promise)
        return found + heapq.nsmallest(shape.nodes - len(found), exact, key=lambda p: p[:2])

    def _promise(self, outlook: Outlook, group: Group) -> Promise | None:
        """When the node can serve its part of a request that asks for more than devices."""
        shape, view = group.shape, outlook.view
        first = outlook.promised[shape.gpus - 1].at
        for at in (first, *(end for end, _ in outlook.releases if end > first)):
            released = _released(outlook, at)
            if not view.has_room(shape.room, _negative(released)):
                continue
            there = [coming for coming in outlook.promised if coming.at <= at]
            chosen = self._choose(there, group.request)
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


def _released(outlook: Outlook, at: datetime) -> Room:
    """What leases will have given back of the node's CPUs and memory by then."""
    cpu_count, memory_mb = 0.0, 0
    for end, room in outlook.releases:
        if end <= at:
            cpu_count += room.cpu_count
            memory_mb += room.memory_mb
    return Room(cpu_count=cpu_count, memory_mb=memory_mb)


def _hopes(schedule: Schedule, shape: Shape, start: datetime) -> list[tuple[datetime, NodeId]]:
    """Nodes on which the request could start before that if leases ended that promise nothing; no
    more of them than are too many.
    """
    with schedule.hoped(shape.gpus) as nodes:
        earlier = takewhile(lambda soonest: soonest[0] < start, nodes)
        hoped = [(at, node_id) for at, node_id, _ in islice(earlier, HOPES_KEPT + shape.nodes)]
    if len(hoped) < shape.nodes:
        return []
    together = hoped[shape.nodes - 1][0]
    return [(max(at, together), node_id) for at, node_id in hoped]


def _kept_until(at: datetime, start: datetime) -> datetime:
    """A node that comes before the others of a gang has to stay before them: as one of those that
    come last another might be taken instead, and what is kept would change with every grant.
    """
    return start - MICROSECOND if at < start else start


def _part(chosen: Sequence[Coming], aside: Room, until: datetime) -> Part:
    return Part(numbers=frozenset(coming.number for coming in chosen), aside=aside, until=until)


def _negative(room: Room) -> Room:
    return Room(cpu_count=-room.cpu_count, memory_mb=-room.memory_mb)


def _beyond(room: Room, released: Room) -> Room:
    """What of it the released does not cover."""
    return Room(
        cpu_count=max(0.0, room.cpu_count - released.cpu_count),
        memory_mb=max(0, room.memory_mb - released.memory_mb),
    )
