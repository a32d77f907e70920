"""GPUs that a device plugin counts on one node, and the parts of them that pods hold."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from schemas.base import MAX_INTEGER
from schemas.cluster.nodes import GpuSupply, NodeGpus
from shared.accelerator_rules.gpu_offers import REGISTERS, Offer
from shared.accelerator_rules.modes import memory_resource_of
from shared.accelerator_rules.quantities import whole
from shared.kubernetes.objects.nodes import Node

OF_HOST: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
Hold = tuple[Mapping[str, int], UUID | None]  # units by resource, and whose


def count_gpus(resource: str, node: Node, offer: Offer, holds: Sequence[Hold]) -> NodeGpus:
    """Return a resource of the node with what its pods hold of it."""
    sharing, per_gpu = offer.sharing, offer.per_gpu
    capacity = whole(node.status.capacity.get(resource, ""))
    allocatable = whole(node.status.allocatable.get(resource, ""))
    requests = [(amounts[resource], owner) for amounts, owner in holds if amounts.get(resource)]
    gpus_by_owner: Counter[UUID] = Counter()
    units_by_owner: Counter[UUID] = Counter()
    for units, owner in requests:
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
        requested=_count(sum(-(-units // per_gpu) for units, _ in requests)),
        by_reservation=dict(gpus_by_owner),
        units_per_gpu=per_gpu,
        allocatable_units=_count(allocatable) if is_divided else 0,
        requested_units=_count(sum(units for units, _ in requests)) if is_divided else 0,
        units_by_reservation=dict(units_by_owner) if is_divided else {},
        allocatable_memory_units=(
            _count(whole(node.status.allocatable[memory])) if memory and has_memory else None
        ),
        requested_memory_units=(
            _count(sum(amounts.get(memory, 0) for amounts, _ in holds)) if memory else 0
        ),
        sharing=sharing,
        whole_requested=(
            _count(sum(units // per_gpu for units, _ in requests if units % per_gpu == 0))
            if is_divided and sharing is None
            else 0
        ),
        is_refused=offer.is_refused,
        note=offer.note,
    )


def _count(value: int) -> int:
    return min(value, MAX_INTEGER)


def count_units(quantities: Mapping[str, str]) -> dict[str, int]:
    """Return what a node counts beside what every host has."""
    return {name: whole(quantity) for name, quantity in quantities.items() if name not in OF_HOST}


def keep_counted(node: Node, is_kept: Callable[[str], bool]) -> Node:
    """Return the node without the parts that do not count: it is held for as long as the node is
    there.
    """

    def of(quantities: dict[str, str]) -> dict[str, str]:
        return {
            name: quantity
            for name, quantity in quantities.items()
            if name in OF_HOST or is_kept(name)
        }

    metadata = node.metadata
    registers = {key: metadata.annotations[key] for key in REGISTERS if key in metadata.annotations}
    return Node(
        metadata=replace(metadata, annotations=registers),
        spec=node.spec,
        status=replace(
            node.status,
            capacity=of(node.status.capacity),
            allocatable=of(node.status.allocatable),
            conditions=[
                condition for condition in node.status.conditions if condition.type == "Ready"
            ],
        ),
    )
