"""Where a request goes: the nodes by placement policy, within each the devices that score best.

This is the whole rule, as a search over everything; the engine's indexes find the same faster.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import NodeId
from schemas.gpu_request import GpuRequest, Placement
from services.scheduler.domain.eligibility import host_blocks, is_eligible
from services.scheduler.domain.fleet import NOTHING, Device, Fleet, Node, Room
from services.scheduler.domain.selectors import mismatch
from shared.scoring import MEMORY_WEIGHT, UTILIZATION_WEIGHT, availability_score

BALANCED_SHARE: Final = 0.8


class Weights(Struct, frozen=True, kw_only=True):
    """Shares of free memory and of idle time in a device's score."""

    memory: float = MEMORY_WEIGHT
    utilization: float = UTILIZATION_WEIGHT


class Look(Struct, frozen=True, kw_only=True):
    """What one request of the queue is judged against.

    `fleet` includes what earlier requests were granted. `claimed` are devices kept for an earlier
    request that may start on them any time; `kept` those that an earlier request will start on
    before this one would be done. Both tell whose. `set_aside` is what such requests need of a
    node's CPUs and memory.
    """

    fleet: Fleet
    claimed: Mapping[int, UUID] = {}
    kept: Mapping[int, UUID] = {}
    set_aside: Mapping[NodeId, Room] = {}
    weights: Weights = Weights()


class Scored(Struct, frozen=True):
    """A device with its score, 0 to 1 with the weights' default sum."""

    device: Device
    score: float
    liked: int = 0  # sum of the weights of the preferences that it matches


Nodes = Mapping[NodeId, Sequence[Device]]
Candidates = Mapping[NodeId, tuple[Scored, ...]]


class PlacedNode(Struct, frozen=True, kw_only=True):
    """A node's part of a grant, best device first."""

    node_id: NodeId
    devices: tuple[Scored, ...]


class Placed(Struct, frozen=True, kw_only=True):
    """The devices for a request, node by node."""

    nodes: tuple[PlacedNode, ...]

    @property
    def node_id(self) -> NodeId:
        """The first node."""
        return self.nodes[0].node_id

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        """All nodes; more than one is a gang."""
        return tuple(node.node_id for node in self.nodes)

    @property
    def devices(self) -> tuple[Scored, ...]:
        """All devices, node by node."""
        return tuple(chain.from_iterable(node.devices for node in self.nodes))

    @property
    def numbers(self) -> frozenset[int]:
        """The devices' numbers in the ledger."""
        return frozenset(scored.device.number for scored in self.devices)


def score(device: Device, weights: Weights) -> float:
    """The availability score; what is not known well enough to have one scores 0."""
    reading = device.reading
    if reading is None:
        return 0.0
    found = availability_score(
        reading.utilization_percent,
        reading.memory_free_mb,
        device.total_mb,
        memory_weight=weights.memory,
        utilization_weight=weights.utilization,
    )
    return found if found is not None else 0.0


def liking(device: Device, request: GpuRequest, node: Node) -> int:
    """By how much of what is preferred the device matches."""
    return sum(
        preference.weight
        for preference in request.prefer
        if mismatch(preference.selector, device, node) is None
    )


def place(look: Look, request: GpuRequest) -> Placed | None:
    """The devices to grant now, or None if there is no place for all of them."""
    candidates = {
        node_id: found
        for node_id, devices in look.fleet.nodes.items()
        if len(found := eligible(look, devices, request)) >= request.gpus
        and has_room(look, node_id, request)
    }
    return place_among(look.fleet.nodes, candidates, request)


def place_among(nodes: Nodes, candidates: Candidates, request: GpuRequest) -> Placed | None:
    """The best place if these are the devices that may be taken, best first on each node."""
    placed = _place(nodes, candidates, request)
    if placed is None or not request.balanced_memory or request.nodes == 1:
        return placed
    free = [free_mb(scored) for scored in placed.devices]
    if is_balanced(min(free), max(free)):
        return placed
    return _place_balanced_gang(nodes, candidates, request)


def has_room(look: Look, node_id: NodeId, request: GpuRequest) -> bool:
    """Whether the node has the CPUs and memory that are asked for beside GPUs."""
    set_aside = look.set_aside.get(node_id, NOTHING)
    return next(host_blocks(look.fleet.host(node_id), request, set_aside), None) is None


def eligible(look: Look, devices: Sequence[Device], request: GpuRequest) -> tuple[Scored, ...]:
    """The devices of one node that this request may take now, best first."""
    if not devices:
        return ()
    node = look.fleet.node(devices[0].node_id)
    found = (
        Scored(device, score(device, look.weights), liking(device, request, node))
        for device in devices
        if device.number not in look.claimed
        and device.number not in look.kept
        and is_eligible(device, request, node)
    )
    return best_first(found)


def best_first(found: Iterable[Scored]) -> tuple[Scored, ...]:
    """Preferred ones first, then by score."""
    return tuple(sorted(found, key=_rank))


def choose(candidates: tuple[Scored, ...], request: GpuRequest) -> tuple[Scored, ...] | None:
    """As many of a node's eligible devices as asked for, or None. `candidates` are best first."""
    if len(candidates) < request.gpus:
        return None
    if not request.balanced_memory:
        return candidates[: request.gpus]
    groups = [
        group
        for largest in candidates
        if (group := _balanced_below(largest, candidates, request.gpus)) is not None
    ]
    return max(groups, key=worth, default=None)


def preference(
    devices: Sequence[Device], chosen: Sequence[Scored], placement: Placement
) -> tuple[int, float, int, float]:
    """Smallest first: what is liked, the fuller node for `pack`, the emptier for `spread`, then
    the scores.
    """
    held = sum(1 for device in devices if device.holder is not None)
    share, free = held / len(devices), len(devices) - held
    liked, total = worth(chosen)
    sign = -1 if placement is Placement.PACK else 1
    return -liked, sign * share, -sign * free, -total


def _place(nodes: Nodes, candidates: Candidates, request: GpuRequest) -> Placed | None:
    chosen = {
        node_id: group
        for node_id, found in candidates.items()
        if (group := choose(found, request)) is not None
    }
    if len(chosen) < request.nodes:
        return None
    ranked = sorted(chosen, key=lambda n: (*preference(nodes[n], chosen[n], request.placement), n))
    return Placed(
        nodes=tuple(
            PlacedNode(node_id=node_id, devices=chosen[node_id])
            for node_id in ranked[: request.nodes]
        )
    )


def _place_balanced_gang(
    nodes: Nodes, candidates: Candidates, request: GpuRequest
) -> Placed | None:
    """The best of those groups over several nodes in which no device has much less memory free."""
    found = (
        placed
        for below in _windows(candidates)
        if (placed := _place(nodes, below, request)) is not None
    )
    return max(found, key=lambda placed: worth(placed.devices), default=None)


def _windows(candidates: Candidates) -> Iterator[dict[NodeId, tuple[Scored, ...]]]:
    """The candidates within the balanced share below each amount of free memory, largest first."""
    ceilings = {free_mb(scored) for found in candidates.values() for scored in found}
    for ceiling in sorted(ceilings, reverse=True):
        yield {
            node_id: tuple(s for s in found if is_balanced(free_mb(s), ceiling))
            for node_id, found in candidates.items()
        }


def is_balanced(free_mb: int, largest_mb: int) -> bool:
    """Whether a device may be in a balanced group with one that has `largest_mb` free."""
    return BALANCED_SHARE * largest_mb <= free_mb <= largest_mb


def _balanced_below(
    largest: Scored, candidates: tuple[Scored, ...], gpus: int
) -> tuple[Scored, ...] | None:
    """The best group in which no device has more memory free than `largest`, none much less."""
    ceiling = free_mb(largest)
    others = [s for s in candidates if s is not largest and is_balanced(free_mb(s), ceiling)]
    if len(others) < gpus - 1:
        return None
    return best_first((largest, *others[: gpus - 1]))


def _rank(scored: Scored) -> tuple[int, float, int, int]:
    return -scored.liked, -scored.score, scored.device.index, scored.device.number


def worth(chosen: Iterable[Scored]) -> tuple[int, float]:
    """How much is liked of a group, and its scores; larger is better."""
    group = tuple(chosen)
    return sum(s.liked for s in group), total_score(group)


def total_score(chosen: Iterable[Scored]) -> float:
    """Added one by one, as `accumulate` does; `sum` rounds otherwise from Python 3.12 on."""
    total = 0.0
    for scored in chosen:
        total += scored.score
    return total


def free_mb(scored: Scored) -> int:
    """Memory that is free on it; 0 if unknown."""
    reading = scored.device.reading
    return reading.memory_free_mb or 0 if reading is not None else 0
