"""Parts of GPUs that a cluster gives out: how many of them a node has room for, for certain.

A cluster counts units and says of no pod which GPU its part is on. So what is promised here fits
wherever Kubernetes has put the other parts.
"""

from typing import NamedTuple

from schemas.cluster.nodes import NodeGpus
from schemas.gpus.gpu_request import ClusterRequest, GpuRequest
from shared.accelerator_rules.modes import SHARED_GPU_RESOURCE, memory_resource_of


class PartNeed(NamedTuple):
    """Units of a resource on one GPU, and of the memory that belongs to it."""

    units: int
    memory_units: int = 0


class PartsInFlight(NamedTuple):
    """What reservations hold of a node's units that pods do not ask for yet."""

    units: int = 0
    memory_units: int = 0


def part_of(request: GpuRequest) -> PartNeed | None:
    """Return the part of a GPU that a request asks for; None: whole ones, or whatever its resource
    counts. Of slices each is a part.
    """
    cluster = request.cluster or ClusterRequest()
    if cluster.units is not None:
        return PartNeed(cluster.units, cluster.memory_units or 0)
    if cluster.resource == SHARED_GPU_RESOURCE:
        return PartNeed(request.gpus)
    return None


def part_words(resource: str | None, part: PartNeed) -> str:
    """Return `30 tencent.com/vcuda-core on one GPU`."""
    memory = memory_resource_of(resource or "")
    beside = f" and {part.memory_units} {memory}" if part.memory_units and memory else ""
    return f"{part.units} {resource}{beside} on one GPU"


def parts_free(gpus: NodeGpus, need: PartNeed, promised_gpus: int, promised: PartsInFlight) -> int:
    """Return how many such parts fit, wherever the parts that are held may be.

    Each pod has touched as many GPUs as its units come to, rounded up, and no more: the others are
    whole. On one that is touched a part fits for certain only where it is the only such GPU, or
    where all of them together have so much that one has to have enough.
    """
    units = gpus.allocatable_units - gpus.requested_units - promised.units
    memory = _memory_left(gpus, promised)
    most = min(units // need.units, _times(memory, need.memory_units))
    if most <= 0:
        return 0
    if gpus.sharing is not None:  # every slice is as good as any
        return most
    per_gpu = gpus.units_per_gpu
    if need.units > per_gpu:
        return 0
    touched = min(gpus.allocatable, gpus.requested + promised_gpus)
    untouched = gpus.allocatable - touched
    memory_per_gpu = _memory_per_gpu(gpus)
    on_each = min(per_gpu // need.units, _times(memory_per_gpu, need.memory_units))
    left = PartNeed(
        units - untouched * per_gpu,
        memory - untouched * memory_per_gpu if memory is not None and memory_per_gpu else 0,
    )
    return min(most, untouched * on_each + _on_touched(touched, left, need, memory is not None))


def _on_touched(touched: int, left: PartNeed, need: PartNeed, is_memory_known: bool) -> int:
    if touched == 0 or left.units < need.units:
        return 0
    if touched == 1:
        by_memory = _times(left.memory_units if is_memory_known else None, need.memory_units)
        return min(left.units // need.units, by_memory)
    has_enough = -(-left.units // touched) >= need.units
    return 1 if has_enough and not need.memory_units else 0


def _memory_left(gpus: NodeGpus, promised: PartsInFlight) -> int | None:
    if gpus.allocatable_memory_units is None:
        return None
    return gpus.allocatable_memory_units - gpus.requested_memory_units - promised.memory_units


def _memory_per_gpu(gpus: NodeGpus) -> int | None:
    if gpus.allocatable_memory_units is None or not gpus.allocatable:
        return None
    return gpus.allocatable_memory_units // gpus.allocatable


def _times(has: int | None, needed: int) -> int:
    """Return how often it is there; what is not asked for, or not told, any number of times."""
    unbounded = 1 << 53
    return unbounded if has is None or not needed else max(0, has) // needed
