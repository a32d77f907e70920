"""From when on the devices are free that one filter lets through, node by node, soonest first."""

import heapq
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final, NamedTuple

from schemas.base import NodeId
from services.scheduler.domain.eligibility import DEFAULT_FREE_SHARE, room_of
from services.scheduler.domain.fleet import Device, Room
from services.scheduler.domain.placement import Scored
from services.scheduler.domain.reach import Reach
from services.scheduler.domain.state import State
from services.scheduler.domain.views import NodeView, Views, is_in_service

FREE_ALREADY: Final = datetime.min.replace(tzinfo=UTC)
SPARE_ENTRIES: Final = 64  # outdated ones that a heap may carry beside as many as are current

Soonest = tuple[datetime, NodeId, int]


class Coming(NamedTuple):
    """A device of a node, and from when it can be had."""

    at: datetime
    place: int
    number: int
    scored: Scored


class Outlook(NamedTuple):
    """A node's devices, soonest first.

    `promised` are those whose leases tell their end. `hoped` has all, as if the leases that do not
    ended now. `releases` tells what CPUs and memory leases give back and when. `serial` tells
    states of one node apart.
    """

    view: NodeView
    promised: Sequence[Coming]
    hoped: Sequence[Coming]
    releases: Sequence[tuple[datetime, Room]]
    serial: int


class Schedule:
    """The outlook of every node that has devices which the filter could ever let through."""

    def __init__(self, state: State, reach: Reach) -> None:
        self.nodes: dict[NodeId, Outlook] = {}
        self._state = state
        self._reach = reach
        self._synced: int | None = None
        self._serial = 0
        self._promised: dict[int, list[Soonest]] = {}
        self._hoped: dict[int, list[Soonest]] = {}

    def sync(self, views: Views) -> None:
        """Take over which nodes have changed."""
        changed = views.since(self._synced) if self._synced is not None else None
        if changed is None:
            self.nodes.clear()
            self._promised.clear()
            self._hoped.clear()
            changed = {view.node_id for view in views.candidates(self._reach.filter)}
        for node_id in changed:
            self._put(node_id, views.nodes.get(node_id))
        self._synced = views.log_end

    @contextmanager
    def promised(self, gpus: int) -> Iterator[Iterator[Soonest]]:
        """Nodes in the order in which they are promised to have so many devices."""
        with _in_order(self._heap(self._promised, gpus), self.nodes) as nodes:
            yield nodes

    @contextmanager
    def hoped(self, gpus: int) -> Iterator[Iterator[Soonest]]:
        """Nodes in the order in which they may have so many devices at best."""
        with _in_order(self._heap(self._hoped, gpus), self.nodes) as nodes:
            yield nodes

    def _heap(self, heaps: dict[int, list[Soonest]], gpus: int) -> list[Soonest]:
        heap = heaps.get(gpus)
        if heap is None or len(heap) > 2 * len(self.nodes) + SPARE_ENTRIES:
            is_promise = heaps is self._promised
            heap = heaps[gpus] = [
                (coming[gpus - 1].at, node_id, outlook.serial)
                for node_id, outlook in self.nodes.items()
                if len(coming := outlook.promised if is_promise else outlook.hoped) >= gpus
            ]
            heapq.heapify(heap)
        return heap

    def _put(self, node_id: NodeId, view: NodeView | None) -> None:
        if view is None or not self._reach.usable(view):
            self.nodes.pop(node_id, None)
            return
        outlook = self.nodes[node_id] = self._outlook(view)
        for heaps, coming in ((self._promised, outlook.promised), (self._hoped, outlook.hoped)):
            for gpus, heap in heaps.items():
                if len(coming) >= gpus:
                    heapq.heappush(heap, (coming[gpus - 1].at, node_id, outlook.serial))

    def _outlook(self, view: NodeView) -> Outlook:
        promised: list[Coming] = []
        hoped: list[Coming] = []
        for scored in self._reach.ready(view):
            device = scored.device
            coming = Coming(FREE_ALREADY, device.index, device.number, scored)
            promised.append(coming)
            hoped.append(coming)
        for device in held_in_time(view, self._reach):
            lease = self._state.lease_of(device.number)
            end = self._state.end_of(lease) if lease is not None else None
            scored = Scored(device, 0.0)
            if end is not None:
                promised.append(Coming(end, device.index, device.number, scored))
            hoped.append(Coming(end or FREE_ALREADY, device.index, device.number, scored))
        promised.sort(key=_soonest)
        hoped.sort(key=_soonest)
        releases = [
            (end, room_of(lease.request))
            for lease in self._state.leases_on(view.node_id)
            if (end := self._state.end_of(lease)) is not None
        ]
        releases.sort(key=itemgetter(0))
        self._serial += 1
        return Outlook(view, promised, hoped, releases, self._serial)


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


@contextmanager
def _in_order(heap: list[Soonest], nodes: dict[NodeId, Outlook]) -> Iterator[Iterator[Soonest]]:
    """Reads a heap as far as it is asked to, and puts back what is current."""
    seen: list[Soonest] = []

    def read() -> Iterator[Soonest]:
        while heap:
            soonest = heapq.heappop(heap)
            outlook = nodes.get(soonest[1])
            if outlook is not None and outlook.serial == soonest[2]:
                seen.append(soonest)
                yield soonest

    yield read()
    for soonest in seen:
        heapq.heappush(heap, soonest)


def _soonest(coming: Coming) -> tuple[datetime, int, int]:
    return coming.at, coming.place, coming.number
