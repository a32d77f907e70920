"""Which devices one filter lets through: ever, by what does not change, and now, by an index."""

from typing import Final

from schemas.base import NodeId
from schemas.gpus.gpu_request import GpuRequest, SelectorKey
from services.scheduler.domain.indexes.index_entry import IndexEntry
from services.scheduler.domain.indexes.node_index import NodeIndex
from services.scheduler.domain.indexes.node_views import NodeView, NodeViews
from services.scheduler.domain.placement.device_choice import Chosen, Scored
from services.scheduler.domain.placement.eligibility import can_ever_serve, is_eligible
from services.scheduler.domain.placement.gpu_models import Positions, Usable
from services.scheduler.domain.placement.placement import Weights, score
from services.scheduler.domain.placement.request_shape import Filter

SPECIFIC: Final = frozenset({SelectorKey.NODE, SelectorKey.GPU_UUID, SelectorKey.LABEL})


class FilterIndex:
    """The devices of a fleet that a filter lets through.

    What is usable some day is cached by what it depends on: by kind for most filters, which cannot
    distinguish nodes of one kind; by identity for one that names nodes, uuids or labels and
    `is_specific`. A node whose traits change has another key, so nothing is ever invalidated. What
    may be shared now is cached with the view that it was computed from: a changed node has another
    view. What is ready now is in a `NodeIndex`, which catches up with the nodes changed since
    `_synced`, and is built anew when the change log does not reach back that far.
    """

    __slots__ = (
        "_index",
        "_request",
        "_serial",
        "_shareable",
        "_synced",
        "_usable",
        "filter",
        "is_specific",
    )

    def __init__(self, filter_: Filter, request: GpuRequest) -> None:
        self.filter = filter_
        self.is_specific = bool(
            filter_.node_ids
            or filter_.device_uuids
            or filter_.enforced_shares  # by a label, as is
            or filter_.exceeds_one
            or any(selector.key in SPECIFIC for selector in filter_.require)
        )
        self._request = request
        self._usable: dict[object, Usable] = {}
        self._index: NodeIndex | None = None
        self._synced = 0
        self._serial = 0
        self._shareable: dict[NodeId, tuple[NodeView, Chosen, int]] = {}

    def usable(self, view: NodeView) -> Positions:
        """Positions of the node's devices that could serve some day."""
        return self.usable_devices(view).positions

    def usable_devices(self, view: NodeView) -> Usable:
        """The same, and of each model."""
        key: object = view.identity if self.is_specific else view.kind
        usable = self._usable.get(key)
        if usable is None:
            positions = tuple(
                position
                for position, device in enumerate(view.devices)
                if can_ever_serve(device, self._request, view.node)
            )
            usable = self._usable[key] = Usable.of(view.devices, positions)
        return usable

    def node_index(self, views: NodeViews) -> NodeIndex:
        """The nodes with devices that it lets through now; catches up with changes first."""
        index = self._index
        changed = views.since(self._synced) if index is not None else None
        if index is None or changed is None:
            index = self._index = NodeIndex()
            for view in views.candidates(self.filter):
                self._put(index, view)
        else:
            for node_id in changed:
                if node_id in views.nodes:
                    self._put(index, views.nodes[node_id])
                else:
                    index.put(node_id, None)
        self._synced = views.log_end
        return index

    def forget_index(self) -> None:
        """Release its memory; it is built anew when needed."""
        self._index = None

    def _put(self, index: NodeIndex, view: NodeView) -> None:
        usable = self.usable_devices(view)
        ready = self._ready(view, usable.positions)
        if ready:
            self._serial += 1
            index.put(view.node_id, IndexEntry(view, ready, usable, self._serial))
        elif view.node_id in index.entries:
            index.put(view.node_id, None)

    def shareable(self, view: NodeView, weights: Weights) -> tuple[Chosen, int]:
        """The node's devices of which shares may be taken now, and how much they have free."""
        cached = self._shareable.get(view.node_id)
        if cached is None or cached[0] is not view:
            scored_devices = tuple(
                Scored(device, score(device, weights))
                for device in map(view.devices.__getitem__, self.usable(view))
                if is_eligible(device, self._request, view.node)
            )
            free = sum(scored.device.free_hundredths for scored in scored_devices)
            cached = self._shareable[view.node_id] = view, scored_devices, free
        return cached[1], cached[2]

    def ready(self, view: NodeView) -> Chosen:
        """The node's devices that it lets through now, best first."""
        return self._ready(view, self.usable(view))

    def _ready(self, view: NodeView, usable: Positions) -> Chosen:
        if not usable:
            return ()
        limit, needed = self.filter.max_utilization_percent, self.filter.min_memory_mb
        every = len(usable) == len(view.devices)
        return tuple(
            available.scored
            for available in view.open
            if available.used_percent <= limit
            and available.free_mb >= (needed if needed is not None else available.half_mb)
            and (every or available.position in usable)
        )
