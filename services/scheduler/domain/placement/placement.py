"""The placement rule: nodes by placement policy, within each the devices that score best.

This is the whole rule as a scan over everything, which explanations use. Grants find the same by
indexes (queue/placement_search.py); the two are held equal by
tests/unit/scheduler/placement/test_search.py.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Protocol, Self
from uuid import UUID

from msgspec import Struct

from schemas.base import NodeId
from schemas.gpus.device_grant import ShareKind
from schemas.gpus.gpu_request import WHOLE, GpuRequest, Placement
from services.scheduler.domain.model.fleet import (
    NO_HOST_RESOURCES,
    Device,
    Fleet,
    HostResources,
    Node,
)
from services.scheduler.domain.placement.density import Density, Room, class_of
from services.scheduler.domain.placement.device_choice import (
    Chosen,
    Scored,
    best_first,
    choose,
    free_mb,
    is_balanced,
    quality,
    value_of,
)
from services.scheduler.domain.placement.eligibility import (
    host_blocks,
    is_eligible,
    is_of_one_gpu,
    share_kind,
)
from services.scheduler.domain.placement.gpu_models import Model, by_model, needs_one_model
from services.scheduler.domain.placement.selectors import mismatch
from services.scheduler.domain.placement.shares import (
    SharesRefused,
    divide_for,
    hundredths_of,
)
from services.scheduler.domain.placement.topology import Closeness, Fit, Topology
from shared.gpu.scoring import MEMORY_WEIGHT, UTILIZATION_WEIGHT, availability_score


class Weights(Struct, frozen=True, kw_only=True):
    """Shares of free memory and of idle time in a device's score."""

    memory: float = MEMORY_WEIGHT
    utilization: float = UTILIZATION_WEIGHT


class PlacementContext(Struct, frozen=True, kw_only=True):
    """All that decides the placement of one request in the queue.

    `fleet` includes what earlier requests were granted. Reserved for earlier requests, with their
    ids: `optimistic` devices, on which one may start any time, and `promised` ones, on which one
    will start before this request would end. `host_reserved` are the host resources for them.
    `density` is None unless the policy places by it.
    """

    fleet: Fleet
    optimistic: Mapping[int, UUID] = {}
    promised: Mapping[int, UUID] = {}
    host_reserved: Mapping[NodeId, HostResources] = {}
    weights: Weights = Weights()
    share_quantum: int = 1
    density: Density | None = None

    def cost_of(self, request: GpuRequest) -> "Cost":
        """Return what places cost the demand; 0 under policies that do not count costs."""
        if self.density is None or request.placement is not Placement.PACK:
            return no_cost
        density, demand = self.density, class_of(request)

        def cost(node_id: NodeId, parts: Taken = ()) -> float:
            room = Room.of(self.fleet.nodes[node_id], self.fleet.host(node_id))
            return density.cost(room, demand, parts)

        return cost


Fill = tuple[float, int]
Nodes = Mapping[NodeId, Sequence[Device]]
Candidates = Mapping[NodeId, Chosen]
Preference = tuple[int, int, float, float, int, Fit, float]
Taken = tuple[tuple[int, int], ...]  # of a device with so many hundredths free, so many


class Cost(Protocol):
    """What a grant on a node costs: of its whole devices, or of `parts` of them."""

    def __call__(self, node_id: NodeId, parts: Taken = ()) -> float: ...


def no_cost(node_id: NodeId, parts: Taken = ()) -> float:  # noqa: ARG001  # one of several costs
    """Return 0: without the `density` policy no place costs more than another."""
    return 0.0


class PlacedNode(Struct, frozen=True, kw_only=True):
    """A node's part of a grant, best device first. Of shares `parts` of the devices, in hundredths,
    and what enforces them.
    """

    node_id: NodeId
    devices: tuple[Scored, ...]
    parts: tuple[int, ...] = ()
    share_kind: ShareKind = ShareKind.COOPERATIVE


class Placed(Struct, frozen=True, kw_only=True):
    """The devices for a request, node by node."""

    nodes: tuple[PlacedNode, ...]

    @classmethod
    def on(cls, nodes: Iterable[tuple[NodeId, tuple[Scored, ...]]]) -> Self:
        return cls(nodes=tuple(PlacedNode(node_id=n, devices=devices) for n, devices in nodes))

    @property
    def has_balanced_memory(self) -> bool:
        free = [free_mb(scored) for scored in self.devices]
        return is_balanced(min(free), max(free))

    @property
    def node_id(self) -> NodeId:
        return self.nodes[0].node_id

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        """The ids of the nodes; more than one is a gang."""
        return tuple(node.node_id for node in self.nodes)

    @property
    def devices(self) -> tuple[Scored, ...]:
        return tuple(chain.from_iterable(node.devices for node in self.nodes))

    @property
    def numbers(self) -> frozenset[int]:
        """The devices' numbers in the ledger."""
        return frozenset(scored.device.number for scored in self.devices)

    @property
    def parts(self) -> dict[int, int]:
        """Hundredths of each device that is not granted as a whole, by its number."""
        return {
            scored.device.number: part
            for node in self.nodes
            if node.parts
            for scored, part in zip(node.devices, node.parts, strict=True)
            if part < WHOLE
        }


def score(device: Device, weights: Weights) -> float:
    """The availability score; what is not known well enough to have one scores 0."""
    reading = device.reading
    if reading is None:
        return 0.0
    score = availability_score(
        reading.utilization_percent,
        reading.memory_free_mb,
        device.total_mb,
        memory_weight=weights.memory,
        utilization_weight=weights.utilization,
    )
    return score if score is not None else 0.0


def preference_weight(device: Device, request: GpuRequest, node: Node) -> int:
    """The sum of the weights of the request's preferences that the device matches."""
    return sum(
        preference.weight
        for preference in request.prefer
        if mismatch(preference.selector, device, node) is None
    )


def place(context: PlacementContext, request: GpuRequest) -> Placed | None:
    """The devices to grant now, or None if there is no place for all of them."""
    if request.shares is not None:
        devices_by_node = {
            node_id: eligible(context, devices, request)
            for node_id, devices in context.fleet.nodes.items()
            if has_host_resources(context, node_id, request)
        }
        return place_shares(
            devices_by_node,
            request,
            context.share_quantum,
            context.fleet.node,
            context.cost_of(request),
        )
    candidates = {
        node_id: eligible_devices
        for node_id, devices in context.fleet.nodes.items()
        if len(eligible_devices := eligible(context, devices, request)) >= request.gpus
        and has_host_resources(context, node_id, request)
    }
    return place_among(context.fleet.nodes, candidates, request, context.cost_of(request))


def place_shares(
    candidates: Candidates,
    request: GpuRequest,
    quantum: int,
    node_of: Callable[[NodeId], Node],
    cost: Cost = no_cost,
) -> Placed | None:
    """The best node for shares, if these are the devices that may be taken.

    Preferred devices come first, then what costs least; then `pack` opens the fewest free devices,
    on the node with the least free, and `spread` takes the node with the most.
    """
    best: tuple[tuple[int, float, int, int, float, NodeId], PlacedNode] | None = None
    hundredths = hundredths_of(request)
    packs = request.placement is Placement.PACK
    for node_id, candidates_on in _share_groups(candidates, request):
        declared = sorted(candidates_on, key=_wishes_rank)
        free = [scored.device.free_hundredths for scored in declared]
        if (room := sum(free)) < hundredths:
            continue
        node = node_of(node_id)
        divided = divide_for(request, free, quantum, of_one_device=is_of_one_gpu(node))
        if isinstance(divided, SharesRefused):
            continue
        taken_parts = [(s, part) for s, part in zip(declared, divided, strict=True) if part]
        taken_parts.sort(key=lambda item: quality(item[0]))
        devices, parts = (tuple(column) for column in zip(*taken_parts, strict=True))
        preferred, total = value_of(devices)
        opened = sum(scored.device.holder is None for scored in devices)
        fullness = (opened, room) if packs else (0, -room)
        sizes = tuple(sorted((s.device.free_hundredths, part) for s, part in taken_parts))
        order = (-preferred, cost(node_id, sizes), *fullness, -total, node_id)
        if best is None or order < best[0]:
            kind = share_kind(devices[0].device, node)
            best = (
                order,
                PlacedNode(node_id=node_id, devices=devices, parts=parts, share_kind=kind),
            )
    return Placed(nodes=(best[1],)) if best is not None else None


def _share_groups(candidates: Candidates, request: GpuRequest) -> Iterator[tuple[NodeId, Chosen]]:
    """The devices of a node that shares may be of together."""
    for node_id, devices in candidates.items():
        if request.mixed_models:
            yield node_id, devices
        else:
            yield from (
                (node_id, same_model) for _, same_model in sorted(by_model(devices).items())
            )


def _wishes_rank(scored: Scored) -> tuple[int, int]:
    return scored.device.index, scored.device.number


def place_among(
    nodes: Nodes, candidates: Candidates, request: GpuRequest, cost: Cost = no_cost
) -> Placed | None:
    """The best place if these are the devices that may be taken, best first on each node.

    Of the models that have one, the one whose first node is best, then the next.
    """
    if not needs_one_model(request):
        return _place_group(nodes, candidates, request, cost)
    groups: dict[Model, dict[NodeId, Chosen]] = {}
    for node_id, devices in candidates.items():
        for model, same_model in by_model(devices).items():
            groups.setdefault(model, {})[node_id] = same_model
    options = [
        placed
        for model in sorted(groups)
        if (placed := _place_group(nodes, groups[model], request, cost)) is not None
    ]
    return min(options, key=lambda placed: _orders(nodes, placed, request, cost), default=None)


def _orders(
    nodes: Nodes, placed: Placed, request: GpuRequest, cost: Cost
) -> list[tuple[Preference, NodeId]]:
    """The order of each of its nodes."""
    return [(_order(nodes, n.node_id, n.devices, request, cost), n.node_id) for n in placed.nodes]


def _order(
    nodes: Nodes, node_id: NodeId, devices: Chosen, request: GpuRequest, cost: Cost
) -> Preference:
    topology = Topology.of(nodes[node_id])
    closeness = topology.closeness([scored.device for scored in devices])
    fill = fill_of(nodes[node_id])
    return preference(fill, devices, request.placement, closeness, cost(node_id))


def _place_group(
    nodes: Nodes, candidates: Candidates, request: GpuRequest, cost: Cost
) -> Placed | None:
    """The best place among devices that may all be taken together."""
    placed = _place(nodes, candidates, request, cost)
    if placed is None or not request.balanced_memory or placed.has_balanced_memory:
        return placed
    return _place_balanced_gang(nodes, candidates, request, cost)


def has_host_resources(context: PlacementContext, node_id: NodeId, request: GpuRequest) -> bool:
    """True if the node has the CPUs and memory that are requested besides GPUs."""
    host_reserved = context.host_reserved.get(node_id, NO_HOST_RESOURCES)
    return next(host_blocks(context.fleet.host(node_id), request, host_reserved), None) is None


def eligible(
    context: PlacementContext, devices: Sequence[Device], request: GpuRequest
) -> tuple[Scored, ...]:
    """The devices of one node that this request may take now, best first."""
    if not devices:
        return ()
    node = context.fleet.node(devices[0].node_id)
    scored_devices = (
        Scored(device, score(device, context.weights), preference_weight(device, request, node))
        for device in devices
        if device.number not in context.optimistic
        and device.number not in context.promised
        and is_eligible(device, request, node)
    )
    return best_first(scored_devices)


def fill_of(devices: Sequence[Device]) -> Fill:
    """Sorts fuller nodes first."""
    held_count = sum(1 for device in devices if device.holder is not None)
    return -held_count / len(devices), len(devices) - held_count


def preference(
    fill: Fill, devices: Chosen, placement: Placement, closeness: Closeness, cost: float = 0.0
) -> Preference:
    """Return a sort key, smallest first.

    Preferred devices come first, then those near to each other, then what costs least, the fuller
    node for `pack`, the emptier for `spread`, what breaks the least, then the scores.
    """
    preferred, total = value_of(devices)
    distance, fit = closeness
    return -preferred, distance, cost, *fill_order(fill, placement), fit, -total


def fill_order(fill: Fill, placement: Placement) -> Fill:
    """Return a sort key, smallest first."""
    return fill if placement is Placement.PACK else (-fill[0], -fill[1])


def _place(nodes: Nodes, candidates: Candidates, request: GpuRequest, cost: Cost) -> Placed | None:
    options: list[tuple[Preference, NodeId, Chosen]] = []
    for node_id, candidates_on in candidates.items():
        devices = choose(candidates_on, request, Topology.of(nodes[node_id]))
        if devices is not None:
            options.append((_order(nodes, node_id, devices, request, cost), node_id, devices))
    if len(options) < request.nodes:
        return None
    best = heapq.nsmallest(request.nodes, options, key=lambda option: option[:2])
    return Placed.on((node_id, devices) for _, node_id, devices in best)


def _place_balanced_gang(
    nodes: Nodes, candidates: Candidates, request: GpuRequest, cost: Cost
) -> Placed | None:
    """The best place over several nodes in which no device has much less memory free."""
    placements = (
        placed
        for below in _windows(candidates)
        if (placed := _place(nodes, below, request, cost)) is not None
    )
    return max(placements, key=lambda placed: value_of(placed.devices), default=None)


def _windows(candidates: Candidates) -> Iterator[dict[NodeId, tuple[Scored, ...]]]:
    """The candidates within the balanced share below each amount of free memory, largest first."""
    ceilings = {free_mb(scored) for devices in candidates.values() for scored in devices}
    for ceiling in sorted(ceilings, reverse=True):
        yield {
            node_id: tuple(s for s in devices if is_balanced(free_mb(s), ceiling))
            for node_id, devices in candidates.items()
        }
