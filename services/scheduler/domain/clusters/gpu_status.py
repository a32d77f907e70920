"""Every GPU of a cluster's nodes, as far as something has read it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from schemas.base import NodeId
from schemas.cluster.node_selection import ClusterGpu
from schemas.cluster.nodes import ClusterNode, NodeGpus
from services.scheduler.domain.clusters.choice import Cluster, ClusterFleet
from services.scheduler.domain.clusters.divided import divided_gpus
from services.scheduler.domain.clusters.node_gpus import NO_METRICS, Thresholds, gpus_of, is_meant

_ANY = Thresholds(100.0, 100.0)


def gpu_status(own: Sequence[ClusterGpu], fleet: ClusterFleet) -> list[ClusterGpu]:
    """By node and index; `own` are those that agents report, by the ids of their nodes.

    A node of a cluster is listed once, by its name there, from whichever source it was read.
    """
    read: defaultdict[NodeId, list[ClusterGpu]] = defaultdict(list)
    for gpu in own:
        read[gpu.node_name].append(gpu)
    found: list[ClusterGpu] = []
    for cluster in fleet.known:
        for node in cluster.nodes.values():
            gpus = gpus_of(node, None) or divided_gpus(node)
            by_agent = read.pop(node.node_id, [])
            if gpus is not None:
                is_whole = is_meant(gpus)
                free = fleet.free_gpus(cluster, node, gpus, _ANY).free if is_whole else 0
                found += _of_node(cluster, node, gpus, by_agent, free)
    found += (gpu for gpus in read.values() for gpu in gpus)
    return sorted(
        found,
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
    shown = {gpu.gpu_index: gpu for gpu in by_agent if gpu.has_metrics}
    if not shown and not is_stale:
        shown = {gpu.gpu_index: gpu for gpu in _exported(node, gpus)}
    unread = (index for index in range(gpus.capacity) if index not in shown)
    missing = max(0, gpus.capacity - len(shown))
    for index, _ in zip(unread, range(missing), strict=False):
        shown[index] = _blank(node, gpus, index)
    least_used = sorted(
        shown.values(),
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


def _exported(node: ClusterNode, gpus: NodeGpus) -> Iterable[ClusterGpu]:
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
