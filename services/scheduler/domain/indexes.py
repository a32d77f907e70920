"""Where the devices that one filter lets through are: nodes in order of preference, kept by change.

A search looks at nodes that can serve it, best first, and stops at the first that do: neither full
nodes nor how many there are cost it anything.
"""

import heapq
from bisect import insort
from collections.abc import Callable
from itertools import accumulate
from typing import Final

from schemas.base import NodeId
from schemas.gpu_request import GpuRequest, Placement
from services.scheduler.domain.placement import Scored, best_first, liking, total_score, worth
from services.scheduler.domain.views import NodeView

SPARE_ENTRIES: Final = 64  # outdated ones that a heap may carry beside as many as are current

Fill = tuple[float, int]
Chosen = tuple[Scored, ...]
Judge = Callable[["Entry", Chosen], Chosen | None]
Best = tuple[float, NodeId, int, "Entry"]


class Entry:
    """A node's devices that the filter lets through now, best first. `sums[k]` scores the best k.

    `usable` is how many may ever be; `serial` tells states of one node apart.
    """

    __slots__ = ("ready", "serial", "sums", "usable", "view")

    def __init__(self, view: NodeView, ready: Chosen, usable: int, serial: int) -> None:
        self.usable = usable
        self.serial = serial
        self.view = view
        self.ready = ready
        self.sums = (0.0, *accumulate(scored.score for scored in ready))


class _Bucket:
    """Nodes that are filled alike, for each number of devices in order of their best scores.

    Each has at least `usable` devices that may ever be let through.
    """

    __slots__ = ("entries", "heaps", "usable")

    def __init__(self, usable: int) -> None:
        self.usable = usable
        self.entries: dict[NodeId, Entry] = {}
        self.heaps: dict[int, list[Best]] = {}

    def put(self, entry: Entry) -> None:
        node_id = entry.view.node_id
        self.usable = min(self.usable, entry.usable)
        self.entries[node_id] = entry
        for gpus, heap in self.heaps.items():
            if len(entry.ready) >= gpus:
                heapq.heappush(heap, (-entry.sums[gpus], node_id, entry.serial, entry))

    def drop(self, node_id: NodeId) -> None:
        del self.entries[node_id]

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


class Index:
    """Every node's devices that one filter lets through now.

    `put` takes a node's new state over; nodes whose devices all fail the filter are not kept.
    """

    def __init__(self) -> None:
        self.entries: dict[NodeId, Entry] = {}
        self._buckets: dict[Fill, _Bucket] = {}
        self._fills: list[Fill] = []

    def put(self, node_id: NodeId, entry: Entry | None) -> None:
        """A node's new state; None if no device of it can be taken."""
        before = self.entries.pop(node_id, None)
        if before is not None:
            self._buckets[before.view.fill].drop(node_id)
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
        self, request: GpuRequest, judge: Judge, kept_from: int
    ) -> list[tuple[NodeId, Chosen]]:
        """As many nodes as asked for with their devices, best first; fewer if there are no more.

        `judge` says which of a node's devices it is to be, or None. It would say so of every node
        that has `kept_from` usable devices or more.
        """
        if request.prefer:
            return self._find_liked(request, judge)
        found: list[tuple[NodeId, Chosen]] = []
        fills = self._fills if request.placement is Placement.PACK else reversed(self._fills)
        for fill in fills:
            bucket = self._buckets[fill]
            if bucket.entries and bucket.usable < kept_from:
                _search(bucket, request.gpus, request.nodes, judge, found)
                if len(found) == request.nodes:
                    break
        return found

    def _find_liked(self, request: GpuRequest, judge: Judge) -> list[tuple[NodeId, Chosen]]:
        ranked = []
        for node_id, entry in self.entries.items():
            if len(entry.ready) < request.gpus:
                continue
            node = entry.view.node
            liked = best_first(
                Scored(s.device, s.score, liking(s.device, request, node)) for s in entry.ready
            )
            chosen = judge(entry, liked)
            if chosen is not None:
                share, free = entry.view.fill
                sign = 1 if request.placement is Placement.PACK else -1
                likes, total = worth(chosen)
                ranked.append((-likes, sign * share, sign * free, -total, node_id, chosen))
        best = heapq.nsmallest(request.nodes, ranked, key=lambda found: found[:5])
        return [(found[4], found[5]) for found in best]


def _search(
    bucket: _Bucket, gpus: int, wanted: int, judge: Judge, found: list[tuple[NodeId, Chosen]]
) -> None:
    """Adds the bucket's best nodes to `found` until they are as many as wanted.

    A node may have to give less than its best: then it waits in `lesser` for its turn.
    """
    heap, entries = bucket.heap(gpus), bucket.entries
    looked_at: list[Best] = []
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
        looked_at.append(best)
        if (given := judge(entry, entry.ready)) is None:
            continue
        if (value := -total_score(given)) == bound:
            found.append((node_id, given))
        else:
            heapq.heappush(lesser, (value, node_id, given))
    for best in looked_at:
        heapq.heappush(heap, best)
