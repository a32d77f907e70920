"""Pods that left the API without their end: what they may use is held until nobody is seen."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from schemas.cluster.nodes import ClusterNode, NodeGpus, VanishedPod
from shared.accelerator_rules.modes import memory_resource_of

_TOLD: Final = 2  # pods in a sentence


def hold_vanished(node: ClusterNode, pod_uids: frozenset[str] | None) -> ClusterNode:
    """Return the node with what its vanished pods asked for as requested, but for those that an
    agent proves gone. `pod_uids` are the pods of which kubelet or a process on any of its GPUs was
    just seen; None: what is there is not known whole.
    """
    if not node.vanished:
        return node
    staying = tuple(pod for pod in node.vanished if pod_uids is None or pod.uid in pod_uids)
    gpus = tuple(_with_requests(gpus, staying) for gpus in node.gpus)
    return replace(node, gpus=gpus, vanished=staying)


def describe_vanished(node: ClusterNode) -> str:
    """Say which pods may still use GPUs, and what shows that they do not; empty without any."""
    if not node.vanished:
        return ""
    names = [f"{pod.namespace}/{pod.name}" for pod in node.vanished]
    more = f" and {len(names) - _TOLD} more" if len(names) > _TOLD else ""
    return (
        f"deleted by force, may run on: {', '.join(names[:_TOLD])}{more}; held until our agent"
        " there sees nobody, or the node boots"
    )


def _with_requests(gpus: NodeGpus, pods: Sequence[VanishedPod]) -> NodeGpus:
    per_gpu = gpus.units_per_gpu
    is_divided = per_gpu > 1 or gpus.sharing is not None
    memory = memory_resource_of(gpus.resource) if is_divided else None
    for pod in pods:
        units = pod.units.get(gpus.resource, 0)
        if not units:
            continue
        count = -(-units // per_gpu)
        reservation_id = pod.reservation_id
        by_reservation, units_by_reservation = gpus.by_reservation, gpus.units_by_reservation
        if reservation_id is not None:
            gpus_before = by_reservation.get(reservation_id, 0)
            by_reservation = by_reservation | {reservation_id: gpus_before + count}
        if reservation_id is not None and is_divided:
            units_before = units_by_reservation.get(reservation_id, 0)
            units_by_reservation = units_by_reservation | {reservation_id: units_before + units}
        gpus = replace(
            gpus,
            requested=gpus.requested + count,
            by_reservation=by_reservation,
            requested_units=gpus.requested_units + (units if is_divided else 0),
            units_by_reservation=units_by_reservation,
            requested_memory_units=gpus.requested_memory_units
            + (pod.units.get(memory, 0) if memory else 0),
        )
    return gpus
