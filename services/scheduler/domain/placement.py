"""Where a request goes: the node by placement policy, within it the devices that score best."""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import NodeId
from schemas.gpu_request import GpuRequest, Placement
from services.scheduler.domain.eligibility import is_eligible
from services.scheduler.domain.fleet import Device, Fleet

BALANCED_SHARE: Final = 0.8


class Weights(Struct, frozen=True, kw_only=True):
    """Shares of free memory and of idle time in a device's score."""

    memory: float = 0.6
    utilization: float = 0.4


class Look(Struct, frozen=True, kw_only=True):
    """What one request of the queue is judged against.

    `fleet` includes what earlier requests were granted in the same pass; `claimed` are the devices
    kept for an earlier request that has to wait, with its id.
    """

    fleet: Fleet
    claimed: Mapping[int, UUID] = {}
    weights: Weights = Weights()


class Scored(Struct, frozen=True):
    """A device with its score, 0 to 1 with the weights' default sum."""

    device: Device
    score: float


class Placed(Struct, frozen=True, kw_only=True):
    """The devices for a request, all of one node, best first."""

    node_id: NodeId
    devices: tuple[Scored, ...]

    @property
    def numbers(self) -> frozenset[int]:
        """The devices' numbers in the ledger."""
        return frozenset(scored.device.number for scored in self.devices)


def score(device: Device, weights: Weights) -> float:
    """`0.6 * free/total + 0.4 * (100 - utilization)/100`; an unknown part counts nothing."""
    reading = device.reading
    if reading is None:
        return 0.0
    free, total = reading.memory_free_mb, device.total_mb
    memory = free / total if free is not None and total else 0.0
    used = reading.utilization_percent
    idle = (100.0 - used) / 100.0 if used is not None else 0.0
    return weights.memory * memory + weights.utilization * idle


def place(look: Look, request: GpuRequest) -> Placed | None:
    """The devices to grant now, or None if no node has enough of them."""
    options = [
        (devices, Placed(node_id=node_id, devices=chosen))
        for node_id, devices in look.fleet.nodes.items()
        if (chosen := choose(eligible(look, devices, request), request)) is not None
    ]
    if not options:
        return None
    return min(options, key=lambda o: _preference(o[0], o[1], request.placement))[1]


def eligible(look: Look, devices: Sequence[Device], request: GpuRequest) -> tuple[Scored, ...]:
    """The devices of one node that this request may take now, best first."""
    found = [
        Scored(device, score(device, look.weights))
        for device in devices
        if device.number not in look.claimed and is_eligible(device, request)
    ]
    return tuple(sorted(found, key=lambda s: (-s.score, s.device.index, s.device.number)))


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
    return max(groups, key=lambda group: sum(s.score for s in group), default=None)


def _balanced_below(
    largest: Scored, candidates: tuple[Scored, ...], gpus: int
) -> tuple[Scored, ...] | None:
    """The best group in which no device has more memory free than `largest`, none much less."""
    ceiling = _free_mb(largest)
    others = [
        s for s in candidates if s != largest and BALANCED_SHARE * ceiling <= _free_mb(s) <= ceiling
    ]
    if len(others) < gpus - 1:
        return None
    group = (largest, *others[: gpus - 1])
    return tuple(sorted(group, key=lambda s: (-s.score, s.device.index)))


def _free_mb(scored: Scored) -> int:
    reading = scored.device.reading
    return reading.memory_free_mb or 0 if reading is not None else 0


def _preference(
    devices: Sequence[Device], placed: Placed, placement: Placement
) -> tuple[float, int, float, str]:
    """Smallest first: the fuller node for `pack`, the emptier for `spread`, then the scores."""
    held = sum(1 for device in devices if device.holder is not None)
    share, free = held / len(devices), len(devices) - held
    total = sum(s.score for s in placed.devices)
    sign = -1 if placement is Placement.PACK else 1
    return sign * share, -sign * free, -total, placed.node_id
