"""The node for an inference service that Kubernetes places: the one with the most idle GPUs."""

from collections.abc import Sequence

from msgspec import Struct

from schemas.base import NodeId
from schemas.scheduler_views import NodeSelection, SelectNode
from schemas.telemetry import HealthState
from services.scheduler.domain.fleet import Device, Fleet, Reading, ReadingState


class NodeSummary(Struct, frozen=True, kw_only=True):
    """What a node is ranked by; GPUs that tell no utilization count as unused in the mean."""

    node_id: NodeId
    allocatable: int
    idle: int
    mean_utilization_percent: float


def select_node(fleet: Fleet, query: SelectNode) -> NodeSelection:
    """Prefer enough idle GPUs, then more of them, then less use; none if no node has enough at all.

    A GPU without metrics counts as idle here: what is free, the cluster says; readings only rank.
    """
    summaries = [_summary(node_id, devices, query) for node_id, devices in fleet.nodes.items()]
    able = [summary for summary in summaries if summary.allocatable >= query.required_gpus]
    if not able:
        return NodeSelection(
            node_id=None, message=f"no node has {query.required_gpus} allocatable GPUs"
        )
    best = min(able, key=lambda summary: _rank(summary, query.required_gpus))
    return NodeSelection(node_id=best.node_id, message=_sentence(best))


def is_idle(device: Device, query: SelectNode) -> bool:
    """Whether it is below both thresholds; a metric that is missing is not held against it."""
    reading = _current(device)
    if reading is None:
        return True
    utilization, used = reading.utilization_percent, _memory_used_percent(device, reading)
    return (utilization is None or utilization < query.utilization_threshold) and (
        used is None or used < query.memory_threshold
    )


def _summary(node_id: NodeId, devices: Sequence[Device], query: SelectNode) -> NodeSummary:
    free = [device for device in devices if _is_allocatable(device)]
    use = [_utilization(device) for device in devices]
    return NodeSummary(
        node_id=node_id,
        allocatable=len(free),
        idle=sum(is_idle(device, query) for device in free),
        mean_utilization_percent=sum(use) / len(use) if use else 0.0,
    )


def _is_allocatable(device: Device) -> bool:
    return device.health is HealthState.OK and not device.cordoned and device.holder is None


def _current(device: Device) -> Reading | None:
    return device.reading if device.reading_state is ReadingState.FRESH else None


def _utilization(device: Device) -> float:
    reading = _current(device)
    return (reading.utilization_percent or 0.0) if reading is not None else 0.0


def _memory_used_percent(device: Device, reading: Reading) -> float | None:
    total, free = device.total_mb, reading.memory_free_mb
    return 100.0 * (total - free) / total if total and free is not None else None


def _rank(summary: NodeSummary, required_gpus: int) -> tuple[bool, int, float, str]:
    return (
        summary.idle < required_gpus,
        -summary.idle,
        summary.mean_utilization_percent,
        summary.node_id,
    )


def _sentence(best: NodeSummary) -> str:
    return (
        f"{best.node_id}: {best.idle} of {best.allocatable} allocatable GPUs idle, "
        f"mean utilization {best.mean_utilization_percent:.1f} %"
    )
