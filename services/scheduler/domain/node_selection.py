"""Nodes for an inference service that Kubernetes places: each GPU, sums by node, and the best one.

Kubernetes decides what is free; readings only order nodes. So a GPU that nothing reads counts as
idle, which it never does for a grant: nothing is granted here.
"""

from collections.abc import Mapping, Sequence

from schemas.base import DeviceUuid, NodeId
from schemas.cluster.node_selection import (
    MEMORY_THRESHOLD,
    UTILIZATION_THRESHOLD,
    ClusterGpu,
    NodeGpuSummary,
    NodeSelection,
)
from schemas.telemetry.readings import HealthState
from services.scheduler.domain.model.fleet import Device, Fleet, Node, ReadingState, sum_used_mb

Temperatures = Mapping[tuple[NodeId, DeviceUuid], float]


def cluster_gpu_status(fleet: Fleet, temperatures: Temperatures | None = None) -> list[ClusterGpu]:
    """Return every GPU by node and index. A stale reading is no metric, and no GPU with one counts
    as free.
    """
    return [
        _cluster_gpu(device, fleet.node(node_id), (temperatures or {}).get((node_id, device.uuid)))
        for node_id, devices in fleet.nodes.items()
        for device in devices
    ]


def is_idle(
    gpu: ClusterGpu,
    utilization_threshold: float = UTILIZATION_THRESHOLD,
    memory_threshold: float = MEMORY_THRESHOLD,
) -> bool:
    """Return True if the GPU is allocatable and below both thresholds; a missing metric counts as
    low, a stale one as high.

    A GPU at a threshold is not idle.
    """
    utilization, memory = gpu.utilization_percent, gpu.memory_usage_percent
    return (
        gpu.allocatable
        and not gpu.is_stale
        and (utilization is None or utilization < utilization_threshold)
        and (memory is None or memory < memory_threshold)
    )


def node_gpu_summaries(
    gpus: Sequence[ClusterGpu],
    utilization_threshold: float = UTILIZATION_THRESHOLD,
    memory_threshold: float = MEMORY_THRESHOLD,
) -> dict[str, NodeGpuSummary]:
    """The GPUs summed up by node name; nodes without any are left out."""
    by_node: dict[str, list[ClusterGpu]] = {}
    for gpu in gpus:
        by_node.setdefault(gpu.node_name, []).append(gpu)
    return {
        name: NodeGpuSummary(
            node_name=name,
            total_gpus=len(gpus),
            allocatable_gpus=sum(gpu.allocatable for gpu in gpus),
            idle_gpu_count=sum(
                is_idle(gpu, utilization_threshold, memory_threshold) for gpu in gpus
            ),
            avg_utilization_percent=mean_of_known([gpu.utilization_percent for gpu in gpus]),
            avg_memory_usage_percent=mean_of_known([gpu.memory_usage_percent for gpu in gpus]),
            has_metrics=any(gpu.has_metrics for gpu in gpus),
        )
        for name, gpus in sorted(by_node.items())
    }


def find_best_node(summaries: Mapping[str, NodeGpuSummary], required_gpus: int) -> NodeSelection:
    """Nodes with enough idle GPUs first, then more idle ones, then less use on average.

    Where no node has enough idle GPUs the ranking is the same; a node that has too few allocatable
    ones is never chosen. None leaves the choice to Kubernetes.
    """
    able = [summary for summary in summaries.values() if summary.allocatable_gpus >= required_gpus]
    if not able:
        most = max((summary.allocatable_gpus for summary in summaries.values()), default=0)
        why = f"no node has {required_gpus} allocatable GPUs; the most that one has is {most}"
        return NodeSelection(node_id=None, message=why)
    best = min(
        able,
        key=lambda summary: (
            summary.idle_gpu_count < required_gpus,
            -summary.idle_gpu_count,
            summary.avg_utilization_percent or 0.0,
            summary.node_name,
        ),
    )
    return NodeSelection(node_id=best.node_name, message=sentence(best), summary=best)


def _cluster_gpu(device: Device, node: Node, temperature_c: float | None) -> ClusterGpu:
    reading = device.reading if device.reading_state is ReadingState.FRESH else None
    total = device.total_mb
    used = sum_used_mb(reading, total)
    return ClusterGpu(
        node_name=device.node_id,
        gpu_index=device.index,
        gpu_uuid=device.uuid,
        gpu_model=device.name,
        allocatable=node.admitted
        and not node.lost
        and node.cluster is None
        and _is_allocatable(device),
        memory_total_mb=total,
        memory_used_mb=used,
        memory_usage_percent=100.0 * used / total if used is not None and total else None,
        utilization_percent=reading.utilization_percent if reading is not None else None,
        temperature_c=temperature_c if reading is not None else None,
        has_metrics=reading is not None,
        is_stale=device.reading_state is ReadingState.STALE,
        cluster_id=node.cluster,
    )


def _is_allocatable(device: Device) -> bool:
    is_divided = bool(device.mig_enabled) and device.parent_uuid is None
    return (
        device.health is HealthState.OK
        and not device.cordoned
        and device.holder is None
        and not is_divided
    )


def mean_of_known(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are known; None if none is."""
    known_values = [value for value in values if value is not None]
    return sum(known_values) / len(known_values) if known_values else None


def sentence(best: NodeGpuSummary) -> str:
    """Say what the chosen node has."""
    used = best.avg_utilization_percent
    mean = f"mean utilization {used:.1f} %" if used is not None else "no metrics"
    return (
        f"{best.node_name}: {best.idle_gpu_count} of {best.allocatable_gpus} allocatable GPUs"
        f" idle, {mean}"
    )
