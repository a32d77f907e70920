"""GPUs that a device plugin counts on one node, and the parts of them that pods hold."""

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

from schemas.base import LARGEST_INTEGER
from schemas.cluster.nodes import GpuSupply, NodeGpus
from services.cluster.domain.objects import Node
from shared.accelerator_rules.gpu_offers import Offer
from shared.accelerator_rules.modes import memory_resource_of
from shared.accelerator_rules.quantities import whole

Hold = tuple[Mapping[str, int], UUID | None]  # units by resource, and whose


def count_gpus(resource: str, node: Node, offer: Offer, holds: Sequence[Hold]) -> NodeGpus:
    """Return a resource of the node with what its pods hold of it."""
    sharing, per_gpu = offer.sharing, offer.per_gpu
    capacity = whole(node.status.capacity.get(resource, ""))
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
        capacity=_count(offer.gpus if offer.is_refused else capacity // per_gpu),
        allocatable=0 if offer.is_refused else _count(allocatable // per_gpu),
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
        is_refused=offer.is_refused,
        note=offer.note,
    )


def _count(value: int) -> int:
    return min(value, LARGEST_INTEGER)
