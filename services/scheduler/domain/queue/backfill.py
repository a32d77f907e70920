"""Backfill: reserves what a waiting request will start on, and lets later requests use the rest.

A later one may also run on reserved devices if it ends before they are needed.
"""

import heapq
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Final

from msgspec.structs import replace

from schemas.base import NodeId
from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.indexes.filter_index import FilterIndex
from services.scheduler.domain.indexes.node_views import NodeView, NodeViews
from services.scheduler.domain.model.fleet import NO_HOST_RESOURCES, Device, HostResources
from services.scheduler.domain.model.state import State
from services.scheduler.domain.placement.device_choice import Scored, choose
from services.scheduler.domain.placement.gpu_models import Model
from services.scheduler.domain.placement.placement import Weights, score
from services.scheduler.domain.placement.request_shape import Shape
from services.scheduler.domain.queue.availability_timeline import (
    FREE_ALREADY,
    Availability,
    AvailabilityTimeline,
    NodeTimeline,
)
from services.scheduler.domain.queue.waiting_group import (
    BackfillReservation,
    NodeReservation,
    WaitingGroup,
)

MAX_OPTIMISTIC_NODES: Final = 64  # with more of them everything is reserved
MAX_TIMELINES: Final = 64

Promise = tuple[datetime, NodeId, NodeReservation]


class BackfillForecast:
    """Computes reservations from the promised ends of leases; nothing else is counted on."""

    def __init__(self, state: State, views: NodeViews, weights: Weights) -> None:
        self._state = state
        self._views = views
        self._weights = weights
        self._timelines: dict[FilterIndex, AvailabilityTimeline] = {}

    def reservation_for(self, group: WaitingGroup) -> BackfillReservation:
        """Return what to reserve for the first request of a group that has to wait.

        The devices on which it starts by promised ends, until then; and on nodes where it could
        start earlier if leases without a known end ended, everything that it could use. If too
        little is promised, everything that it could ever use: for gangs with balanced memory, as
        free memory cannot be foreseen, and for shares.
        """
        shape, filter_index = group.shape, group.filter_index
        if shape.shares is not None or (shape.balanced and shape.nodes > 1):
            return BackfillReservation()
        timeline = self._timeline_of(filter_index)
        models: Sequence[Model | None] = timeline.models() if shape.one_model else (None,)
        options = [self._promises(timeline, group, model) for model in models]
        enough = [option for option in options if len(option) == shape.nodes]
        if not enough:
            return BackfillReservation()
        promises = min(enough, key=lambda option: option[-1][:2])
        shadow_time = promises[-1][0]
        optimistic = [
            (model, *soonest)
            for model in models
            for soonest in _optimistic_nodes(timeline, shape, model, shadow_time)
        ]
        if len(optimistic) > MAX_OPTIMISTIC_NODES:
            return BackfillReservation(too_many_nodes=True)
        by_node: dict[NodeId, tuple[NodeReservation, ...]] = {
            node_id: (replace(reservation, until=_reserve_until(at, shadow_time)),)
            for at, node_id, reservation in promises
        }
        for model, at, node_id in optimistic:
            view = timeline.nodes[node_id].view
            usable = filter_index.usable_devices(view)
            positions = usable.positions if model is None else usable.by_model[model]
            numbers = frozenset(view.devices[position].number for position in positions)
            reservation = NodeReservation(
                numbers=numbers, host_resources=shape.host_resources, until=at, optimistic=True
            )
            by_node[node_id] = (*by_node.get(node_id, ()), reservation)
        return BackfillReservation(shadow_time=shadow_time, by_node=by_node)

    def may_change(self, group: WaitingGroup, view: NodeView) -> bool:
        """Return True if a node's new state may change what is reserved for the group elsewhere.

        It does not if it could not serve the group before the shadow time, not even at best: then
        it is neither among the soonest promised nodes nor among the optimistic ones. At the shadow
        time itself only a promise could win, by its node id; without one (too little promised) only
        a further promise matters. When in doubt: True, which costs an evaluation; a wrong False
        would leave an outdated reservation.
        """
        backfill, gpus = group.backfill, group.shape.gpus
        if backfill is None or backfill.too_many_nodes or group.shape.nodes > 1:
            return True
        node_timeline = self._timeline_of(group.filter_index).nodes.get(view.node_id)
        if node_timeline is None:
            return False
        for timeline in (
            node_timeline.of_models.values() if group.shape.one_model else (node_timeline,)
        ):
            at = timeline.begin(gpus, promised=False)
            if at is None:
                continue
            if backfill.shadow_time is None or at == backfill.shadow_time:
                if self._promise(timeline, group) is not None:
                    return True
            elif at < backfill.shadow_time:
                return True
        return False

    def as_idle(self, device: Device) -> Scored:
        """The device as it will be when its lease has ended."""
        idle = device.when_idle()
        return Scored(idle, score(idle, self._weights))

    def _timeline_of(self, filter_index: FilterIndex) -> AvailabilityTimeline:
        timeline = self._timelines.pop(filter_index, None) or AvailabilityTimeline(
            self._state, filter_index
        )
        self._timelines[filter_index] = timeline
        if len(self._timelines) > MAX_TIMELINES:
            del self._timelines[next(iter(self._timelines))]
        timeline.sync(self._views)
        return timeline

    def _promises(
        self, timeline: AvailabilityTimeline, group: WaitingGroup, model: Model | None
    ) -> list[Promise]:
        """The nodes that can serve the request soonest by promised ends, with GPUs of that model;
        fewer if there are no more.

        Nodes come by when enough devices are free, a lower bound of when host resources and balance
        suffice too; `exact` holds those found until no other can be sooner.
        """
        shape = group.shape
        with timeline.soonest(shape.gpus, model, promised=True) as nodes:
            if not shape.balanced and shape.host_resources == NO_HOST_RESOURCES:
                return [
                    (
                        at,
                        node_id,
                        _node_reservation(
                            _of(timeline, node_id, model).promised[: shape.gpus],
                            NO_HOST_RESOURCES,
                            at,
                        ),
                    )
                    for at, node_id, _ in islice(nodes, shape.nodes)
                ]
            exact: list[Promise] = []
            promises: list[Promise] = []
            for at, node_id, _ in nodes:
                while exact and exact[0][:2] < (at, node_id):
                    promises.append(heapq.heappop(exact))
                    if len(promises) == shape.nodes:
                        return promises
                promise = self._promise(_of(timeline, node_id, model), group)
                if promise is not None:
                    heapq.heappush(exact, promise)
        return promises + heapq.nsmallest(shape.nodes - len(promises), exact, key=lambda p: p[:2])

    def _promise(self, timeline: NodeTimeline, group: WaitingGroup) -> Promise | None:
        """Return when the node can serve its part of the request, with host resources and
        balance.
        """
        shape, view = group.shape, timeline.view
        first = timeline.begin(shape.gpus, promised=True)
        if first is None:
            return None
        for at in (first, *(end for end, _ in timeline.releases if end > first)):
            released = HostResources.sum(freed for end, freed in timeline.releases if end <= at)
            reserved = NO_HOST_RESOURCES.minus(released)
            if not view.has_host_resources(shape.host_resources, reserved):
                continue
            available_then = [available for available in timeline.promised if available.at <= at]
            choice = self._choose(available_then, group.request)
            if choice is not None:
                return (
                    at,
                    view.node_id,
                    _node_reservation(choice, _beyond(shape.host_resources, released), at),
                )
        return None

    def _choose(
        self, availabilities: Sequence[Availability], request: GpuRequest
    ) -> Sequence[Availability] | None:
        if not request.balanced_memory:
            return availabilities[: request.gpus]
        idle = tuple(
            self.as_idle(available.scored.device)
            if available.at != FREE_ALREADY
            else available.scored
            for available in availabilities
        )
        devices = choose(idle, request)
        if devices is None:
            return None
        numbers = {scored.device.number for scored in devices}
        return [
            available for available in availabilities if available.scored.device.number in numbers
        ]


def _of(timeline: AvailabilityTimeline, node_id: NodeId, model: Model | None) -> NodeTimeline:
    node_timeline = timeline.nodes[node_id]
    return node_timeline if model is None else node_timeline.of_models[model]


def _optimistic_nodes(
    timeline: AvailabilityTimeline, shape: Shape, model: Model | None, shadow_time: datetime
) -> list[tuple[datetime, NodeId]]:
    """Nodes on which it could start before that if leases without a known end ended; bounded."""
    with timeline.soonest(shape.gpus, model, promised=False) as nodes:
        earlier = takewhile(lambda soonest: soonest[0] < shadow_time, nodes)
        optimistic = [
            (at, node_id) for at, node_id, _ in islice(earlier, MAX_OPTIMISTIC_NODES + shape.nodes)
        ]
    if len(optimistic) < shape.nodes:
        return []
    together = optimistic[shape.nodes - 1][0]
    return [(max(at, together), node_id) for at, node_id in optimistic]


def _reserve_until(at: datetime, shadow_time: datetime) -> datetime:
    """A gang's node that is free before the last ones has to stay before them: if it came at the
    shadow time too, another might be chosen instead, and reservations would change with each grant.
    """
    return shadow_time - timedelta.resolution if at < shadow_time else shadow_time


def _node_reservation(
    availabilities: Sequence[Availability], host_resources: HostResources, until: datetime
) -> NodeReservation:
    return NodeReservation(
        numbers=frozenset(available.scored.device.number for available in availabilities),
        host_resources=host_resources,
        until=until,
    )


def _beyond(host_resources: HostResources, released: HostResources) -> HostResources:
    """Return the part of the host resources that the released ones do not cover."""
    uncovered = host_resources.minus(released)
    return HostResources(
        cpu_count=max(0.0, uncovered.cpu_count), memory_mb=max(0, uncovered.memory_mb)
    )
