"""Which of a node's devices a request gets, of those that it may take."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.model.fleet import Device
from services.scheduler.domain.placement.topology import FLAT, Closeness, Topology

BALANCED_SHARE: Final = 0.8


class Scored(Struct, frozen=True):
    """A device with its score, 0 to 1 with the weights' default sum."""

    device: Device
    score: float
    preferred: int = 0  # sum of the weights of matching preferences


Chosen = tuple[Scored, ...]
Rank = tuple[int, Closeness, float]


def choose(candidates: Chosen, request: GpuRequest, topology: Topology = FLAT) -> Chosen | None:
    """Choose as many of a node's eligible devices as requested; None if too few. `candidates` are
    best first.

    Of all sets the one with the least `rank`, which depends on the set alone. So among fewer
    candidates there is never a better one; `NodeIndex` relies on that.
    """
    if not request.balanced_memory:
        return nearest(candidates, request.gpus, topology)
    sets = (
        nearest(_balance_below(ceiling_mb, candidates), request.gpus, topology)
        for ceiling_mb in dict.fromkeys(map(free_mb, candidates))
    )
    choices = (choice for choice in sets if choice is not None)
    return min(choices, key=lambda choice: rank(choice, topology), default=None)


def nearest(candidates: Chosen, gpus: int, topology: Topology) -> Chosen | None:
    """Choose preferred devices first, then near ones in the group with the fewest free, then the
    best scored.
    """
    if len(candidates) < gpus:
        return None
    top = candidates[:gpus]
    if not topology.groups or len(candidates) == gpus:
        return top
    preferred = sum(scored.preferred for scored in top)
    options = _singles(candidates) if gpus == 1 else _of_groups(candidates, gpus, topology)
    liked = (option for option in options if sum(s.preferred for s in option) == preferred)
    return min((top, *liked), key=lambda choice: rank(choice, topology))


def rank(devices: Chosen, topology: Topology) -> Rank:
    """Return a sort key, smallest first."""
    preferred, total = value_of(devices)
    return -preferred, topology.closeness([scored.device for scored in devices]), -total


def best_first(candidates: Iterable[Scored]) -> Chosen:
    """Preferred ones first, then by score."""
    return tuple(sorted(candidates, key=quality))


def quality(scored: Scored) -> tuple[int, float, int, int]:
    """Return a sort key, smallest first."""
    return -scored.preferred, -scored.score, scored.device.index, scored.device.number


def value_of(devices: Iterable[Scored]) -> tuple[int, float]:
    """Return how many preferences a group meets, and its scores; larger is better."""
    group = tuple(devices)
    return sum(s.preferred for s in group), total_score(group)


def total_score(devices: Iterable[Scored]) -> float:
    """Added one by one; `sum` rounds otherwise from Python 3.12 on."""
    total = 0.0
    for scored in devices:
        total += scored.score
    return total


def is_balanced(free_mb: int, largest_mb: int) -> bool:
    """True if a device is balanced with one that has `largest_mb` free."""
    return BALANCED_SHARE * largest_mb <= free_mb <= largest_mb


def free_mb(scored: Scored) -> int:
    """Free memory; 0 if unknown."""
    reading = scored.device.reading
    return reading.memory_free_mb or 0 if reading is not None else 0


def _balance_below(ceiling_mb: int, candidates: Chosen) -> Chosen:
    return tuple(s for s in candidates if is_balanced(free_mb(s), ceiling_mb))


def _singles(candidates: Chosen) -> Iterable[Chosen]:
    return ((scored,) for scored in candidates)


def _of_groups(candidates: Chosen, gpus: int, topology: Topology) -> Iterable[Chosen]:
    """The best of each group that has enough."""
    for group in topology.groups:
        members = tuple(s for s in candidates if group.members >> s.device.index & 1)
        if len(members) >= gpus:
            yield members[:gpus]
