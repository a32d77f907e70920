"""Every GPU of a cluster's nodes, as far as something has read it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from schemas.base import NodeId
from schemas.cluster.node_selection import ClusterGpu
from schemas.cluster.nodes import ClusterNode, NodeGpus
from services.scheduler.domain.clusters.choice import Cluster, ClusterFleet
from services.scheduler.domain.clusters.divided import find_divided_gpus
from services.scheduler.domain.clusters.node_gpus import NO_METRICS, Thresholds, gpus_of, is_meant

_ANY = Thresholds(100.0, 100.0)


def gpu_status(agent_gpus: Sequence[ClusterGpu], fleet: ClusterFleet) -> list[ClusterGpu]:
    """Merge GPUs by node and index; those that agents report have the ids of their nodes.

    A node of a cluster is listed once, by its name there, from whichever source it was read.
    """
    read: defaultdict[NodeId, list[ClusterGpu]] = defaultdict(list)
    for gpu in agent_gpus:
        read[gpu.node_name].append(gpu)
    merged_gpus: list[ClusterGpu] = []
    for cluster in fleet.known:
        for node in cluster.nodes.values():
            gpus = gpus_of(node, None) or find_divided_gpus(node)
            by_agent = read.pop(node.node_id, [])
            if gpus is not None:
                is_whole = is_meant(gpus)
                free = fleet.free_gpus(cluster, node, gpus, _ANY).free if is_whole else 0
                merged_gpus += _of_node(cluster, node, gpus, by_agent, free)
    merged_gpus += (gpu for gpus in read.values() for gpu in gpus)
    return sorted(
        merged_gpus,
        key=lambda gpu: (gpu.node_name, gpu.gpu_index, gpu.gpu_uuid or gpu.cluster_id or ""),
    )


def _of_node(
    cluster: Cluster,
    node: ClusterNode,
    gpus: NodeGpus,
    by_agent: Iterable[ClusterGpu],
    free: int,
) -> list[ClusterGpu]:
    """Kubernetes counts its free GPUs and names none: taken for free are the least used."""
    is_stale = cluster.loads.get(node.name, NO_METRICS).is_stale
    readings = {gpu.gpu_index: gpu for gpu in by_agent if gpu.has_metrics}
    if not readings and not is_stale:
        readings = {gpu.gpu_index: gpu for gpu in _list_exported(node, gpus)}
    unread = (index for index in range(gpus.capacity) if index not in readings)
    missing = max(0, gpus.capacity - len(readings))
    for index, _ in zip(unread, range(missing), strict=False):
        readings[index] = _blank(node, gpus, index)
    least_used = sorted(
        readings.values(),
        key=lambda gpu: (gpu.memory_usage_percent or 0.0, gpu.utilization_percent or 0.0),
    )
    return [
        replace(
            gpu,
            node_name=node.name,
            cluster_id=cluster.cluster_id,
            allocatable=place < free,
            is_stale=is_stale,
            note=gpus.note,
        )
        for place, gpu in enumerate(least_used)
    ]


def _list_exported(node: ClusterNode, gpus: NodeGpus) -> Iterable[ClusterGpu]:
    for gpu in node.readings:
        used, total = gpu.memory_used_mb, gpu.memory_total_mb
        yield replace(
            _blank(node, gpus, gpu.index),
            gpu_uuid=gpu.uuid,
            memory_total_mb=total,
            memory_used_mb=used,
            memory_usage_percent=100.0 * used / total if used is not None and total else None,
            utilization_percent=gpu.utilization_percent,
            temperature_c=gpu.temperature_c,
            has_metrics=True,
        )


def _blank(node: ClusterNode, gpus: NodeGpus, index: int) -> ClusterGpu:
    return ClusterGpu(
        node_name=node.name,
        gpu_index=index,
        gpu_uuid=None,
        gpu_model=node.gpu_model or gpus.resource,
        allocatable=False,
        memory_total_mb=node.gpu_memory_mb,
    )
