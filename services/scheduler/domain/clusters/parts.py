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
    """What reservations hold that pods do not ask for yet: units of parts on as many `gpus` at
    most, the `largest` part among them, and `whole_gpus`.
    """

    units: int = 0
    memory_units: int = 0
    gpus: int = 0
    whole_gpus: int = 0
    largest: int = 0

    def with_part(self, part: PartNeed, gpus: int) -> "PartsInFlight":
        """Return it with a further part."""
        return PartsInFlight(
            units=self.units + part.units,
            memory_units=self.memory_units + part.memory_units,
            gpus=self.gpus + gpus,
            whole_gpus=self.whole_gpus,
            largest=max(self.largest, part.units),
        )


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


def parts_free(gpus: NodeGpus, need: PartNeed, promised: PartsInFlight) -> int:
    """Return how many such parts fit, wherever the parts that are held may be, and in whatever
    order the pods of those that are promised come.

    Each pod has touched as many GPUs as its units come to, rounded up, and no more: the others are
    free as a whole. On one that is touched a part fits for certain only where it is the only such
    GPU, or where all of them together have so much that one has to have enough.
    """
    if gpus.sharing is not None:  # every slice is as good as any
        slices = gpus.allocatable_units - gpus.requested_units - promised.units
        return max(0, slices // need.units)
    per_gpu, memory_per_gpu = gpus.units_per_gpu, _memory_per_gpu(gpus)
    divisible = gpus.allocatable - gpus.whole_requested - promised.whole_gpus
    if need.units > per_gpu or divisible <= 0:
        return 0
    touching = gpus.requested - gpus.whole_requested + promised.gpus
    touched = min(divisible, touching)
    held_units = gpus.requested_units - gpus.whole_requested * per_gpu + promised.units
    if touching >= divisible and not _leaves_promised(
        divisible, per_gpu, held_units, need, promised
    ):
        return 0
    on_each = min(per_gpu // need.units, _times(memory_per_gpu, need.memory_units))
    memory_left = None
    if memory_per_gpu is not None:
        held_memory = gpus.requested_memory_units + promised.memory_units
        memory_left = touched * memory_per_gpu - held_memory
    on_touched = _on_touched(touched, touched * per_gpu - held_units, memory_left, need)
    untouched = divisible - touched
    return untouched * on_each + on_touched


def _leaves_promised(
    divisible: int, per_gpu: int, held_units: int, need: PartNeed, promised: PartsInFlight
) -> bool:
    """Tell whether what is promised still fits if a further part comes before it and no GPU is
    sure to be untouched: no whole one, no part with memory of its own on one of several, and the
    largest part where all GPUs together have so much that one has to have enough.
    """
    if promised.whole_gpus:
        return False
    if divisible == 1 or not promised.gpus:
        return True
    other_units = held_units + need.units - promised.largest
    return (
        not promised.memory_units
        and -(-(divisible * per_gpu - other_units) // divisible) >= promised.largest
    )


def _on_touched(touched: int, units: int, memory: int | None, need: PartNeed) -> int:
    if touched == 0 or units < need.units:
        return 0
    if touched == 1:
        return min(units // need.units, _times(memory, need.memory_units))
    return 1 if -(-units // touched) >= need.units and not need.memory_units else 0


def _memory_per_gpu(gpus: NodeGpus) -> int | None:
    if gpus.allocatable_memory_units is None or not gpus.allocatable:
        return None
    return gpus.allocatable_memory_units // gpus.allocatable


def _times(has: int | None, needed: int) -> int:
    """Return how often it is there; what is not asked for, or not told, any number of times."""
    unbounded = 1 << 53
    return unbounded if has is None or not needed else max(0, has) // needed
