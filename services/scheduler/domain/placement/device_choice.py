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
    """As many of a node's eligible devices as requested, or None. `candidates` are best first.

    Of all sets the one with the least `rank`, which depends on the set alone. So among fewer
    candidates there is never a better one; `NodeIndex` relies on that.
    """
    if not request.balanced_memory:
        return nearest(candidates, request.gpus, topology)
    sets = (
        nearest(_balanced_below(ceiling_mb, candidates), request.gpus, topology)
        for ceiling_mb in dict.fromkeys(map(free_mb, candidates))
    )
    found = (each for each in sets if each is not None)
    return min(found, key=lambda chosen: rank(chosen, topology), default=None)


def nearest(candidates: Chosen, gpus: int, topology: Topology) -> Chosen | None:
    """What is preferred first, then GPUs near to each other, in the group with the fewest free,
    then those that score best.
    """
    if len(candidates) < gpus:
        return None
    top = candidates[:gpus]
    if not topology.groups or len(candidates) == gpus:
        return top
    preferred = sum(scored.preferred for scored in top)
    options = _singles(candidates) if gpus == 1 else _of_groups(candidates, gpus, topology)
    liked = (each for each in options if sum(s.preferred for s in each) == preferred)
    return min((top, *liked), key=lambda chosen: rank(chosen, topology))


def rank(chosen: Chosen, topology: Topology) -> Rank:
    """Smallest first."""
    preferred, total = worth(chosen)
    return -preferred, topology.closeness([scored.device for scored in chosen]), -total


def best_first(found: Iterable[Scored]) -> Chosen:
    """Preferred ones first, then by score."""
    return tuple(sorted(found, key=quality))


def quality(scored: Scored) -> tuple[int, float, int, int]:
    """Smallest first."""
    return -scored.preferred, -scored.score, scored.device.index, scored.device.number


def worth(chosen: Iterable[Scored]) -> tuple[int, float]:
    """How much is liked of a group, and its scores; larger is better."""
    group = tuple(chosen)
    return sum(s.preferred for s in group), total_score(group)


def total_score(chosen: Iterable[Scored]) -> float:
    """Added one by one; `sum` rounds otherwise from Python 3.12 on."""
    total = 0.0
    for scored in chosen:
        total += scored.score
    return total


def is_balanced(free_mb: int, largest_mb: int) -> bool:
    """Whether a device is balanced with one that has `largest_mb` free."""
    return BALANCED_SHARE * largest_mb <= free_mb <= largest_mb


def free_mb(scored: Scored) -> int:
    """Free memory; 0 if unknown."""
    reading = scored.device.reading
    return reading.memory_free_mb or 0 if reading is not None else 0


def _balanced_below(ceiling_mb: int, candidates: Chosen) -> Chosen:
    return tuple(s for s in candidates if is_balanced(free_mb(s), ceiling_mb))


def _singles(candidates: Chosen) -> Iterable[Chosen]:
    return ((scored,) for scored in candidates)


def _of_groups(candidates: Chosen, gpus: int, topology: Topology) -> Iterable[Chosen]:
    """The best of each group that has enough."""
    for group in topology.groups:
        there = tuple(s for s in candidates if group.members >> s.device.index & 1)
        if len(there) >= gpus:
            yield there[:gpus]
