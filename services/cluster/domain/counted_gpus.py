"""GPUs that a device plugin counts on one node, and the parts of them that pods hold."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from schemas.base import LARGEST_INTEGER
from schemas.cluster.nodes import GpuSharing, GpuSupply, NodeGpus
from services.cluster.domain.objects import Node
from shared.accelerator_rules.modes import (
    GPU_RESOURCE,
    SHARED_GPU_RESOURCE,
    memory_resource_of,
    units_per_gpu,
)
from shared.accelerator_rules.node_labels import SHARING_LABEL
from shared.accelerator_rules.quantities import whole

REPLICAS_LABEL: Final = "nvidia.com/gpu.replicas"
COUNT_LABEL: Final = "nvidia.com/gpu.count"

Hold = tuple[Mapping[str, int], UUID | None]  # units by resource, and whose


def count_gpus(resource: str, node: Node, holds: Sequence[Hold]) -> NodeGpus:
    """Return a resource of the node with what its pods hold of it."""
    sharing = _sharing(resource, node.metadata.labels)
    capacity = whole(node.status.capacity.get(resource, ""))
    per_gpu = _per_gpu(resource, capacity, sharing, node.metadata.labels)
    allocatable = whole(node.status.allocatable.get(resource, ""))
    asked = [(held[resource], owner) for held, owner in holds if held.get(resource)]
    gpus_by_owner: Counter[UUID] = Counter()
    units_by_owner: Counter[UUID] = Counter()
    for units, owner in asked:
        if owner is not None:
            gpus_by_owner[owner] += -(-units // per_gpu)
            units_by_owner[owner] += units
    is_divided = per_gpu > 1 or sharing is not None
    memory = memory_resource_of(resource) if is_divided else None
    has_memory = memory is not None and memory in node.status.allocatable
    return NodeGpus(
        resource=resource,
        supply=GpuSupply.DEVICE_PLUGIN,
        capacity=_count(capacity // per_gpu),
        allocatable=_count(allocatable // per_gpu),
        requested=_count(sum(-(-units // per_gpu) for units, _ in asked)),
        by_reservation=dict(gpus_by_owner),
        units_per_gpu=per_gpu,
        allocatable_units=_count(allocatable) if is_divided else 0,
        requested_units=_count(sum(units for units, _ in asked)) if is_divided else 0,
        units_by_reservation=dict(units_by_owner) if is_divided else {},
        allocatable_memory_units=(
            _count(whole(node.status.allocatable[memory])) if memory and has_memory else None
        ),
        requested_memory_units=(
            _count(sum(held.get(memory, 0) for held, _ in holds)) if memory else 0
        ),
        sharing=sharing,
        whole_requested=(
            _count(sum(units // per_gpu for units, _ in asked if units % per_gpu == 0))
            if is_divided and sharing is None
            else 0
        ),
    )


def _sharing(resource: str, labels: Mapping[str, str]) -> GpuSharing | None:
    """Tell how NVIDIA's plugin shares what it counts there, by GPU Feature Discovery's label."""
    if resource not in {GPU_RESOURCE, SHARED_GPU_RESOURCE}:
        return None
    told = labels.get(SHARING_LABEL, "")
    if told in set(GpuSharing):
        return GpuSharing(told)
    return GpuSharing.TIME_SLICING if resource == SHARED_GPU_RESOURCE else None


def _per_gpu(
    resource: str, capacity: int, sharing: GpuSharing | None, labels: Mapping[str, str]
) -> int:
    """Return how many units are one GPU; of slices by Feature Discovery's count, or replicas."""
    if sharing is None:
        return units_per_gpu(resource)
    gpus = whole(labels.get(COUNT_LABEL, ""))
    if gpus and capacity and capacity % gpus == 0:
        return capacity // gpus
    return max(1, whole(labels.get(REPLICAS_LABEL, "")))


def _count(value: int) -> int:
    return min(value, LARGEST_INTEGER)
