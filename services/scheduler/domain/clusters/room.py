"""What a node of a Kubernetes cluster has left, and how much of that is idle."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct

from schemas.cluster import ClusterNode, NodeGpus

# What NVIDIA's device plugin and DRA driver call whole GPUs.
WHOLE_GPUS: Final = ("nvidia.com/gpu", "gpu.nvidia.com")
TOLERATED_TAINT: Final = "nvidia.com/gpu"
_KEEPS_OUT: Final = frozenset({"NoSchedule", "NoExecute"})


class Thresholds(NamedTuple):
    """A GPU is idle below both."""

    utilization_percent: float
    memory_percent: float


class GpuLoad(NamedTuple):
    """One GPU's reading; None is unknown."""

    utilization_percent: float | None
    memory_percent: float | None


class NodeLoad(Struct, frozen=True, kw_only=True):
    """Readings of a node's GPUs; those that are too old are left out.

    Means are of the known values, None without any; `most` is the largest of each, 0 without any.
    """

    gpus: tuple[GpuLoad, ...] = ()
    is_stale: bool = False
    most: tuple[float, float] = (0.0, 0.0)
    mean_utilization_percent: float | None = None
    mean_memory_percent: float | None = None

    @classmethod
    def of(cls, gpus: Sequence[GpuLoad]) -> "NodeLoad":
        return cls(
            gpus=tuple(gpus),
            most=(
                max((gpu.utilization_percent or 0.0 for gpu in gpus), default=0.0),
                max((gpu.memory_percent or 0.0 for gpu in gpus), default=0.0),
            ),
            mean_utilization_percent=_mean([gpu.utilization_percent for gpu in gpus]),
            mean_memory_percent=_mean([gpu.memory_percent for gpu in gpus]),
        )


NO_METRICS: Final = NodeLoad()
STALE: Final = NodeLoad(is_stale=True)


class InFlight(NamedTuple):
    """GPUs of a node that reservations hold and that `requested` does not count: `unbound`.

    `unsettled` are those that its readings do not show yet.
    """

    unbound: int = 0
    unsettled: int = 0


class Room(NamedTuple):
    """GPUs that no pod and no reservation has, and how many of them are idle."""

    free: int
    idle: int


def takes_pods(node: ClusterNode) -> bool:
    """Whether Kubernetes would bind a pod of ours there, which tolerates NVIDIA's taint alone."""
    if node.is_cordoned or not node.is_ready:
        return False
    return not node.taints or not any(
        taint.effect in _KEEPS_OUT and taint.key != TOLERATED_TAINT for taint in node.taints
    )


def gpus_of(node: ClusterNode, resource: str | None) -> NodeGpus | None:
    """The node's GPUs of this name; None: whole ones, by the name that has the most left."""
    if resource is not None:
        return next((each for each in node.gpus if each.resource == resource), None)
    if len(node.gpus) == 1 and node.gpus[0].resource in WHOLE_GPUS:
        return node.gpus[0]
    whole = [each for each in node.gpus if each.resource in WHOLE_GPUS]
    return max(whole, key=lambda each: each.allocatable - each.requested, default=None)


def room_of(gpus: NodeGpus, load: NodeLoad, in_flight: InFlight, thresholds: Thresholds) -> Room:
    """What is left of a node that takes pods.

    A GPU without metrics counts as idle, one with stale ones does not. Which GPUs a pod will get is
    Kubernetes' choice, so every one that is promised is taken off the idle ones.
    """
    free = max(0, gpus.allocatable - gpus.requested - in_flight.unbound)
    if load.is_stale or not free:
        return Room(free, 0)
    idle = max(gpus.capacity, len(load.gpus))
    below_used, below_full = thresholds
    if load.most[0] >= below_used or load.most[1] >= below_full:
        idle -= sum(
            (used is not None and used >= below_used) or (full is not None and full >= below_full)
            for used, full in load.gpus
        )
    return Room(free, max(0, min(free, idle - in_flight.unsettled)))


def bound_gpus(node: ClusterNode | None, resource: str | None, reservation_id: UUID) -> int:
    """GPUs of a reservation that `requested` counts already."""
    gpus = gpus_of(node, resource) if node is not None else None
    return gpus.by_reservation.get(reservation_id, 0) if gpus is not None else 0


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
