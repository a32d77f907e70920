"""What a node of a Kubernetes cluster has left, and how much of that is idle."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct, field

from schemas.cluster.nodes import ClusterNode, NodeGpus
from services.scheduler.domain.node_selection import mean_of_known
from shared.accelerator_rules.modes import DEVICE_CLASS, GPU_RESOURCE

WHOLE_GPUS: Final = (GPU_RESOURCE, DEVICE_CLASS)
TOLERATED_TAINT: Final = GPU_RESOURCE
_KEEPS_OUT: Final = frozenset({"NoSchedule", "NoExecute"})


class Thresholds(NamedTuple):
    """A GPU is idle below both."""

    utilization_percent: float
    memory_percent: float


class GpuLoad(NamedTuple):
    """One GPU's reading; None is unknown. `is_in_pod`: kubelet gave it to one."""

    utilization_percent: float | None
    memory_percent: float | None
    is_in_pod: bool = False


class NodeLoad(Struct, frozen=True, kw_only=True):
    """Readings of a node's GPUs; those that are too old are left out.

    Means are of the known values, None without any. `boards` is how many GPUs the node has, where
    all of them are read.
    """

    gpus: tuple[GpuLoad, ...] = ()
    is_stale: bool = False
    mean_utilization_percent: float | None = None
    mean_memory_percent: float | None = None
    boards: int | None = None
    # By thresholds, which are mostly the same; an object's readings never change.
    _busy: dict[Thresholds, int] = field(default_factory=dict)

    @classmethod
    def of(cls, gpus: Sequence[GpuLoad], *, is_all: bool = False) -> "NodeLoad":
        """Return readings of some of a node's GPUs, or with `is_all` of each."""
        return cls(
            gpus=tuple(gpus),
            boards=len(gpus) or None if is_all else None,
            mean_utilization_percent=mean_of_known([gpu.utilization_percent for gpu in gpus]),
            mean_memory_percent=mean_of_known([gpu.memory_percent for gpu in gpus]),
        )

    def busy(self, thresholds: Thresholds) -> int:
        """GPUs that are not idle: those of pods, and those at a threshold."""
        if (count := self._busy.get(thresholds)) is None:
            most_used, most_full = thresholds
            count = self._busy[thresholds] = sum(
                is_in_pod
                or (used is not None and used >= most_used)
                or (full is not None and full >= most_full)
                for used, full, is_in_pod in self.gpus
            )
        return count


NO_METRICS: Final = NodeLoad()
STALE: Final = NodeLoad(is_stale=True)


class InFlight(NamedTuple):
    """GPUs of a node that reservations hold and that `requested` does not count: `unbound`.

    `unsettled` are those that its readings do not show yet.
    """

    unbound: int = 0
    unsettled: int = 0


class FreeGpus(NamedTuple):
    """GPUs that no pod and no reservation has, and how many of them are idle."""

    free: int
    idle: int


def takes_pods(node: ClusterNode) -> bool:
    """Return True if Kubernetes would bind our pods there, which tolerate NVIDIA's taint alone."""
    if node.is_cordoned or not node.is_ready:
        return False
    return not node.taints or not any(
        taint.effect in _KEEPS_OUT and taint.key != TOLERATED_TAINT for taint in node.taints
    )


def gpus_of(node: ClusterNode, resource: str | None, *, in_parts: bool = False) -> NodeGpus | None:
    """The node's GPUs of this name; None: whole ones, by the name that has the most left.

    Where a device plugin shares each GPU among pods, what it counts are slices: `in_parts` alone
    means them, and a GPU that is not shared has no slices. What is refused is never meant.
    """
    if resource is None and not in_parts and len(node.gpus) == 1:  # nearly every node
        only = node.gpus[0]
        return only if only.resource in WHOLE_GPUS and is_meant(only) else None
    if resource is not None:
        match = next((gpus for gpus in node.gpus if gpus.resource == resource), None)
        return match if match is not None and is_meant(match, in_parts=in_parts) else None
    whole_gpus = [gpus for gpus in node.gpus if gpus.resource in WHOLE_GPUS and is_meant(gpus)]
    return max(whole_gpus, key=lambda gpus: gpus.allocatable - gpus.requested, default=None)


def is_meant(gpus: NodeGpus, *, in_parts: bool = False) -> bool:
    """Tell whether a request for whole GPUs, or for parts of them, may have these."""
    if gpus.is_refused:
        return False
    if in_parts:
        return gpus.sharing is not None or gpus.units_per_gpu > 1
    return gpus.sharing is None


def free_gpus_of(
    gpus: NodeGpus, load: NodeLoad, in_flight: InFlight, thresholds: Thresholds
) -> FreeGpus:
    """Return the free GPUs of a node that takes pods.

    A GPU without metrics counts as idle, one with stale ones does not. Which GPUs a pod will get is
    Kubernetes' choice, so every one that is promised is taken off the idle ones.
    """
    free = gpus.allocatable - gpus.requested - in_flight.unbound
    if load.is_stale or free <= 0:
        return FreeGpus(max(0, free), 0)
    metered = len(load.gpus)
    idle = max(metered, gpus.capacity) - load.busy(thresholds) - in_flight.unsettled
    return FreeGpus(free, max(0, min(free, idle)))


class Bound(NamedTuple):
    """What `requested` counts of a reservation already, in GPUs and in units."""

    gpus: int = 0
    units: int = 0


def bound_of(node: ClusterNode | None, resource: str, reservation_id: UUID) -> Bound:
    """Return what pods of a reservation ask for that are bound."""
    for gpus in node.gpus if node is not None else ():
        if gpus.resource == resource:
            return Bound(
                gpus.by_reservation.get(reservation_id, 0),
                gpus.units_by_reservation.get(reservation_id, 0),
            )
    return Bound()
