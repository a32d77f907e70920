"""Requests whose node the cluster's own scheduler chooses."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from schemas.cluster.nodes import GpuSupply, NodeGpus
from schemas.gpus.device_grant import ClusterPlacement
from schemas.gpus.gpu_request import ClusterRequest, GpuRequest
from services.scheduler.domain.clusters.divided import list_avoided_hostnames
from services.scheduler.domain.clusters.node_gpus import gpus_of, takes_pods
from services.scheduler.domain.clusters.parts import part_of

if TYPE_CHECKING:
    from services.scheduler.domain.clusters.choice import Cluster

LEFT: Final = "left to the cluster's scheduler"


def leave_to_cluster(
    request: GpuRequest, target: ClusterRequest, clusters: Sequence["Cluster"], why: str
) -> ClusterPlacement:
    """Place it in the cluster whose emptiest node has the most GPUs left."""
    in_parts = part_of(request) is not None
    options = [
        (cluster, _find_most_left(cluster, target.resource, in_parts=in_parts))
        for cluster in clusters
    ]
    cluster, gpus = min(options, key=lambda option: (-_count_left(option[1]), option[0].cluster_id))
    resource = gpus.resource if gpus is not None else target.resource
    return ClusterPlacement(
        cluster_id=cluster.cluster_id,
        gpus=request.gpus,
        resource=resource,
        supply=gpus.supply if gpus is not None else GpuSupply.DEVICE_PLUGIN,
        message=f"{LEFT}: {why}",
        units=target.units,
        memory_units=target.memory_units,
        avoided_hostnames=(
            () if in_parts else list_avoided_hostnames(cluster.nodes.values(), resource)
        ),
    )


def _find_most_left(cluster: "Cluster", resource: str | None, *, in_parts: bool) -> NodeGpus | None:
    gpus_of_nodes = (
        gpus_of(node, resource, in_parts=in_parts)
        for node in cluster.nodes.values()
        if takes_pods(node)
    )
    return max((gpus for gpus in gpus_of_nodes if gpus is not None), key=_count_left, default=None)


def _count_left(gpus: NodeGpus | None) -> int:
    return gpus.allocatable - gpus.requested if gpus is not None else -1
