"""Which node of a Kubernetes cluster had best be taken: questions, and the answers."""

from typing import Final

from msgspec import Struct

from schemas.base import Count, DeviceUuid, Line, ListView, Mebibytes, NodeId, Percent, Query, View
from schemas.cluster.nodes import HostAmounts
from schemas.gpus.gpu_request import GpuCount, GpuRequest

# Percent, below which a GPU is idle.
UTILIZATION_THRESHOLD: Final = 30.0
MEMORY_THRESHOLD: Final = 50.0


class GetClusterStatus(Query, frozen=True, kw_only=True, tag="scheduler.cluster_status"):
    """Every GPU as node selection sees it. Answered by `ClusterStatus`.

    As many whole nodes as fit into a message, in order of their names, those after `after_node_id`.
    """

    after_node_id: Line | None = None


class GetNodeSummaries(Query, frozen=True, kw_only=True, tag="scheduler.node_summaries"):
    """GPUs summed up by node. Answered by `NodeSummaries`. Thresholds are honoured strictly (<)."""

    utilization_threshold: Percent = UTILIZATION_THRESHOLD
    memory_threshold: Percent = MEMORY_THRESHOLD


class SelectNode(Query, frozen=True, kw_only=True, tag="scheduler.select_node"):
    """The node that a deployment would get now. Answered by `NodeSelection`.

    `request` says all of it, as for a reservation, and goes before the other fields.
    """

    required_gpus: GpuCount = 1
    utilization_threshold: Percent = UTILIZATION_THRESHOLD
    memory_threshold: Percent = MEMORY_THRESHOLD
    request: GpuRequest | None = None


class ClusterGpu(Struct, frozen=True, kw_only=True):
    """A GPU of a node; None readings are unknown, and count as idle for node selection unless
    `is_stale`: there were some, too old to decide on.

    With `cluster_id` the node is that Kubernetes cluster's, which counts its GPUs: as many are
    `allocatable` as it has left, the least used. `gpu_uuid` None: nothing has read it. `note` is
    why none of the node's is given out whole.
    """

    node_name: str
    gpu_index: Count
    gpu_uuid: DeviceUuid | None
    gpu_model: str
    allocatable: bool
    memory_total_mb: Mebibytes | None = None
    memory_used_mb: Mebibytes | None = None
    memory_usage_percent: float | None = None
    utilization_percent: float | None = None
    temperature_c: float | None = None
    has_metrics: bool = False
    is_stale: bool = False
    cluster_id: Line | None = None
    note: str = ""


class ClusterStatus(ListView, frozen=True, kw_only=True, tag="scheduler.cluster_status_view"):
    """GPUs by node and index. `next_after_node_id` is the last node's name where more follow."""

    gpus: tuple[ClusterGpu, ...]
    next_after_node_id: Line | None = None


class NodeGpuSummary(Struct, frozen=True, kw_only=True):
    """A node's GPUs in brief; means count only GPUs with metrics, None if there are none.

    `past_utilization_percent` is the mean of late, in which what is 15 minutes old counts half.
    `free_host` is what its pods leave beside GPUs; None: that is not known. Of GPUs that a plugin
    shares none is allocatable; they are `total_shares`. `note` is what says that they are shared,
    why none of the node's GPUs is given out, or which pods deleted by force may hold some.
    """

    node_name: str
    total_gpus: Count
    allocatable_gpus: Count
    idle_gpu_count: Count
    avg_utilization_percent: float | None = None
    avg_memory_usage_percent: float | None = None
    has_metrics: bool = False
    cluster_id: NodeId | None = None
    past_utilization_percent: float | None = None
    free_host: HostAmounts | None = None
    total_shares: Count = 0
    free_shares: Count = 0
    note: str = ""


class NodeSelection(View, frozen=True, kw_only=True, tag="scheduler.node_selection"):
    """The chosen node with its GPUs in brief; None leaves the choice to Kubernetes.

    `node_id` is the name that its cluster has for it, or the id of a node without one. `hostname`
    is its label `kubernetes.io/hostname`, by which node affinity names it. Without a node the pod
    has to be kept off `avoided_hostnames`, of which a unit is no whole GPU.
    """

    node_id: Line | None
    message: str = ""
    summary: NodeGpuSummary | None = None
    hostname: Line | None = None
    avoided_hostnames: tuple[str, ...] = ()


class NodeSummaries(ListView, frozen=True, kw_only=True, tag="scheduler.node_summaries_view"):
    """Summaries by node name."""

    nodes: dict[str, NodeGpuSummary]
