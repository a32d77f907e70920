"""When devices that one filter lets through are free, node by node, soonest first."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final, NamedTuple

from schemas.base import NodeId
from services.scheduler.domain.indexes.filter_index import FilterIndex
from services.scheduler.domain.indexes.node_views import NodeView, NodeViews, is_in_service
from services.scheduler.domain.model.fleet import Device, HostResources
from services.scheduler.domain.model.state import State
from services.scheduler.domain.placement.device_choice import Scored
from services.scheduler.domain.placement.gpu_models import Model, model_of

FREE_ALREADY: Final = datetime.min.replace(tzinfo=UTC)
SPARE_ENTRIES: Final = 64  # outdated ones that a heap may carry beside as many as are current

Soonest = tuple[datetime, NodeId, int]
HeapKey = tuple[int, Model | None, bool]  # GPUs, of which model, whether promised


class Availability(NamedTuple):
    """A device of a node, and when it is free."""

    at: datetime
    scored: Scored


class NodeTimeline(NamedTuple):
    """A node's usable devices, soonest first; replaced as a whole when the node changes (`serial`).

    Of a node with several models there is one for each of them as well, in `of_models`.
    `promised` are free or held by leases with a known end. `optimistic` are all, as if leases
    without one ended now. `releases` are the host resources that leases free, and when.
    """

    view: NodeView
    promised: Sequence[Availability]
    optimistic: Sequence[Availability]
    releases: Sequence[tuple[datetime, HostResources]]
    serial: int
    of_models: "Mapping[Model, NodeTimeline]"

    def of(self, model: Model | None) -> "NodeTimeline | None":
        """Return the timeline of one model's devices alone; of all devices with None."""
        return self if model is None else self.of_models.get(model)

    def begin(self, gpus: int, *, promised: bool) -> datetime | None:
        """Return when the node has this many devices; None if it never does."""
        available = self.promised if promised else self.optimistic
        return available[gpus - 1].at if len(available) >= gpus else None


class AvailabilityTimeline:
    """The timeline of every node with devices that the filter could ever let through.

    `sync` catches up with changed nodes before each use, by the log of `NodeViews`; a lease that
    changes or passes its end touches its nodes, so it is in that log. The heaps order nodes by when
    they have a number of devices; entries of replaced node timelines stay and are skipped by
    `serial`.
    """

    def __init__(self, state: State, filter_index: FilterIndex) -> None:
        self.nodes: dict[NodeId, NodeTimeline] = {}
        self._state = state
        self._filter_index = filter_index
        self._synced: int | None = None
        self._serial = 0
        self._heaps: dict[HeapKey, list[Soonest]] = {}
        self._models: dict[Model, int] = {}  # on how many nodes

    def sync(self, views: NodeViews) -> None:
        changed = views.since(self._synced) if self._synced is not None else None
        if changed is None:
            self.nodes.clear()
            self._heaps.clear()
            self._models.clear()
            changed = {view.node_id for view in views.candidates(self._filter_index.filter)}
        for node_id in changed:
            self._put(node_id, views.nodes.get(node_id))
        self._synced = views.log_end

    def models(self) -> list[Model]:
        """Models of which any node has devices."""
        return sorted(self._models)

    @contextmanager
    def soonest(
        self, gpus: int, model: Model | None, *, promised: bool
    ) -> Iterator[Iterator[Soonest]]:
        """Nodes by when they have so many devices free: by known ends of leases, or at best.

        Reads a heap as far as needed, and puts back what is current.
        """
        heap = self._heap((gpus, model, promised))
        earliest: list[Soonest] = []

        def read() -> Iterator[Soonest]:
            while heap:
                soonest = heapq.heappop(heap)
                timeline = self.nodes.get(soonest[1])
                if timeline is not None and timeline.serial == soonest[2]:
                    earliest.append(soonest)
                    yield soonest

        yield read()
        for soonest in earliest:
            heapq.heappush(heap, soonest)

    def _heap(self, key: HeapKey) -> list[Soonest]:
        heap = self._heaps.get(key)
        if heap is None or len(heap) > 2 * len(self.nodes) + SPARE_ENTRIES:
            heap = self._heaps[key] = [
                (at, node_id, timeline.serial)
                for node_id, timeline in self.nodes.items()
                if (at := _begin(timeline, key)) is not None
            ]
            heapq.heapify(heap)
        return heap

    def _put(self, node_id: NodeId, view: NodeView | None) -> None:
        timeline_before = self.nodes.pop(node_id, None)
        timeline = None
        if view is not None and self._filter_index.usable(view):
            timeline = self.nodes[node_id] = self._timeline(view)
        models_before = timeline_before.of_models.keys() if timeline_before is not None else set()
        models = timeline.of_models.keys() if timeline is not None else set()
        if models_before != models:
            self._count(models_before, -1)
            self._count(models, 1)
        if timeline is None:
            return
        for key, heap in self._heaps.items():
            at = _begin(timeline, key)
            if at is not None:
                heapq.heappush(heap, (at, node_id, timeline.serial))

    def _count(self, models: Iterable[Model], more: int) -> None:
        for model in models:
            self._models[model] = self._models.get(model, 0) + more
            if not self._models[model]:
                del self._models[model]

    def _timeline(self, view: NodeView) -> NodeTimeline:
        promised = [Availability(FREE_ALREADY, s) for s in self._filter_index.ready(view)]
        optimistic = promised.copy()
        for device in usable_held(view, self._filter_index):
            end = self._state.free_at(device.number)
            scored = Scored(device, 0.0)
            if end is not None:
                promised.append(Availability(end, scored))
            optimistic.append(Availability(end or FREE_ALREADY, scored))
        promised.sort(key=_soonest)
        optimistic.sort(key=_soonest)
        releases = [
            (end, HostResources.of(lease.request))
            for lease in self._state.leases_on(view.node_id)
            if (end := self._state.end_of(lease)) is not None
        ]
        releases.sort(key=itemgetter(0))
        self._serial += 1
        models = self._filter_index.usable_devices(view).by_model
        of_models: dict[Model, NodeTimeline] = {}
        timeline = NodeTimeline(view, promised, optimistic, releases, self._serial, of_models)
        if len(models) == 1:
            of_models.update(dict.fromkeys(models, timeline))
            return timeline
        for model in models:
            of_models[model] = NodeTimeline(
                view,
                [availability for availability in promised if _is(model, availability)],
                [availability for availability in optimistic if _is(model, availability)],
                releases,
                self._serial,
                {},
            )
        return timeline


def _begin(timeline: NodeTimeline, key: HeapKey) -> datetime | None:
    gpus, model, promised = key
    model_timeline = timeline.of(model)
    return model_timeline.begin(gpus, promised=promised) if model_timeline is not None else None


def _is(model: Model, available: Availability) -> bool:
    return model_of(available.scored.device) == model


def usable_held(view: NodeView, filter_index: FilterIndex) -> Iterator[Device]:
    """The node's held devices that will suit once their leases have ended."""
    min_memory_mb = filter_index.filter.min_memory_mb
    for position in filter_index.usable(view):
        device = view.devices[position]
        total = device.total_mb
        if device.holder is None or total is None or not is_in_service(device, view.node):
            continue
        if min_memory_mb is None or min_memory_mb <= total:  # half of it is free once it is idle
            yield device


def _soonest(available: Availability) -> tuple[datetime, int, int]:
    return available.at, available.scored.device.index, available.scored.device.number
