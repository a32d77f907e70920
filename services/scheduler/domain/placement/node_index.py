"""Nodes with devices that one filter lets through, in the order in which a placement prefers them.

A search inspects nodes that can serve it, best first, and stops when it has enough: neither full
nodes nor how many there are cost it anything.
"""

import heapq
from bisect import insort
from collections.abc import Callable
from itertools import accumulate
from typing import Final

from schemas.base import NodeId
from schemas.gpu_request import GpuRequest, Placement
from services.scheduler.domain.placement.node_views import NodeView
from services.scheduler.domain.placement.placement import (
    Cost,
    Fill,
    Scored,
    best_first,
    no_cost,
    preference,
    preference_weight,
    total_score,
)

SPARE_ENTRIES: Final = 64  # outdated ones that a heap may carry beside as many as are current

Chosen = tuple[Scored, ...]
Choose = Callable[["IndexEntry", Chosen], Chosen | None]
Best = tuple[float, NodeId, int, "IndexEntry"]


class IndexEntry:
    """A node's devices that the filter lets through now, best first. `sums[k]` scores the best k.

    `usable` is how many could ever be; `serial` orders states of one node, the entry is replaced
    as a whole when the node changes.
    """

    __slots__ = ("ready", "serial", "sums", "usable", "view")

    def __init__(self, view: NodeView, ready: Chosen, usable: int, serial: int) -> None:
        self.usable = usable
        self.serial = serial
        self.view = view
        self.ready = ready
        self.sums = (0.0, *accumulate(scored.score for scored in ready))


class _Bucket:
    """Nodes with equal fill, for each number of devices in order of their best scores.

    A heap is built when its number is first asked for, and from then on every new entry is pushed.
    Replaced entries stay in it: one is current only if it is that of `entries`. `usable` is a lower
    bound over the bucket; it is never raised, which costs a search, not a place.
    """

    __slots__ = ("entries", "heaps", "usable")

    def __init__(self, usable: int) -> None:
        self.usable = usable
        self.entries: dict[NodeId, IndexEntry] = {}
        self.heaps: dict[int, list[Best]] = {}

    def put(self, entry: IndexEntry) -> None:
        node_id = entry.view.node_id
        self.usable = min(self.usable, entry.usable)
        self.entries[node_id] = entry
        for gpus, heap in self.heaps.items():
            if len(entry.ready) >= gpus:
                heapq.heappush(heap, (-entry.sums[gpus], node_id, entry.serial, entry))

    def heap(self, gpus: int) -> list[Best]:
        heap = self.heaps.get(gpus)
        if heap is None or len(heap) > 2 * len(self.entries) + SPARE_ENTRIES:
            heap = self.heaps[gpus] = [
                (-entry.sums[gpus], node_id, entry.serial, entry)
                for node_id, entry in self.entries.items()
                if len(entry.ready) >= gpus
            ]
            heapq.heapify(heap)
        return heap


class NodeIndex:
    """The nodes that have devices which one filter lets through now, in buckets by fill.

    Correct as long as `put` is called for every changed node; `FilterIndex` does so before a
    search.
    """

    def __init__(self) -> None:
        self.entries: dict[NodeId, IndexEntry] = {}
        self._buckets: dict[Fill, _Bucket] = {}
        self._fills: list[Fill] = []

    def put(self, node_id: NodeId, entry: IndexEntry | None) -> None:
        """Replace a node's entry; None if none of its devices can be taken."""
        before = self.entries.pop(node_id, None)
        if before is not None:
            del self._buckets[before.view.fill].entries[node_id]
        if entry is None:
            return
        self.entries[node_id] = entry
        fill = entry.view.fill
        bucket = self._buckets.get(fill)
        if bucket is None:
            bucket = self._buckets[fill] = _Bucket(entry.usable)
            insort(self._fills, fill)
        bucket.put(entry)

    def find(
        self,
        request: GpuRequest,
        choose_on: Choose,
        reserved_size: int,
        cost: Cost | None = None,
    ) -> list[tuple[NodeId, Chosen]]:
        """As many nodes as asked for with their devices, best first; fewer if there are no more.

        `choose_on` picks the devices of one node, or None; it would be None for every node with
        `reserved_size` usable devices or more. With a `cost`, what costs least is best.
        """
        if request.prefer:
            return self._find_preferred(request, choose_on, cost or no_cost)
        if cost is not None:
            return self._find_cheapest(request, choose_on, cost)
        found: list[tuple[NodeId, Chosen]] = []
        fills = self._fills if request.placement is Placement.PACK else reversed(self._fills)
        for fill in fills:
            bucket = self._buckets[fill]
            if bucket.entries and bucket.usable < reserved_size:
                _search(bucket, request.gpus, request.nodes, choose_on, found)
                if len(found) == request.nodes:
                    break
        return found

    def _find_cheapest(
        self, request: GpuRequest, choose_on: Choose, cost: Cost
    ) -> list[tuple[NodeId, Chosen]]:
        """Looks at every node that has enough, as costs do not follow the order of the buckets."""
        gpus = request.gpus
        ranked = [
            (cost(node_id), entry.view.fill, -entry.sums[gpus], node_id, entry)
            for node_id, entry in self.entries.items()
            if len(entry.ready) >= gpus
        ]
        heapq.heapify(ranked)
        found: list[tuple[NodeId, Chosen]] = []
        while ranked and len(found) < request.nodes:
            price, fill, bound, node_id, entry = heapq.heappop(ranked)
            if (given := choose_on(entry, entry.ready)) is None:
                continue
            if (value := -total_score(given)) == bound:
                found.append((node_id, given))
            else:  # reservations leave less than its best devices: it waits for its turn
                heapq.heappush(ranked, (price, fill, value, node_id, entry))
        return found

    def _find_preferred(
        self, request: GpuRequest, choose_on: Choose, cost: Cost
    ) -> list[tuple[NodeId, Chosen]]:
        ranked = []
        for node_id, entry in self.entries.items():
            if len(entry.ready) < request.gpus:
                continue
            node = entry.view.node
            preferred = best_first(
                Scored(s.device, s.score, preference_weight(s.device, request, node))
                for s in entry.ready
            )
            chosen = choose_on(entry, preferred)
            if chosen is not None:
                fill = entry.view.fill
                order = preference(fill, chosen, request.placement, cost(node_id))
                ranked.append((*order, node_id, chosen))
        best = heapq.nsmallest(request.nodes, ranked, key=lambda found: found[:6])
        return [(found[5], found[6]) for found in best]


def _search(
    bucket: _Bucket, gpus: int, wanted: int, choose_on: Choose, found: list[tuple[NodeId, Chosen]]
) -> None:
    """Adds the bucket's best nodes to `found` until they are as many as wanted.

    The heap's order is by the best devices of each node. Where reservations leave less than those,
    the node waits in `lesser` under its real score until no better one can follow.
    """
    heap, entries = bucket.heap(gpus), bucket.entries
    inspected: list[Best] = []
    lesser: list[tuple[float, NodeId, Chosen]] = []
    while len(found) < wanted and (heap or lesser):
        if lesser and (not heap or lesser[0][:2] < heap[0][:2]):
            _, node_id, chosen = heapq.heappop(lesser)
            found.append((node_id, chosen))
            continue
        best = heapq.heappop(heap)
        bound, node_id, _, entry = best
        if entries.get(node_id) is not entry:
            continue
        inspected.append(best)
        if (given := choose_on(entry, entry.ready)) is None:
            continue
        if (value := -total_score(given)) == bound:
            found.append((node_id, given))
        else:
            heapq.heappush(lesser, (value, node_id, given))
    for best in inspected:
        heapq.heappush(heap, best)
