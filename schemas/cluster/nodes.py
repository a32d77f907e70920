"""What nodes of a Kubernetes cluster have, what their pods hold, and how busy their GPUs are."""

from enum import StrEnum
from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from schemas.base import (
    Count,
    Live,
    Mebibytes,
    NodeId,
    Percent,
    PositiveInt,
    Query,
    UtcDatetime,
    View,
)


class GpuSupply(StrEnum):
    """How a cluster hands out GPUs: counted, or as devices of ResourceSlices that claims name."""

    DEVICE_PLUGIN = "device_plugin"
    DRA = "dra"


class ReadingsSource(StrEnum):
    """Where readings of a node's GPUs come from, the best first."""

    AGENT = "agent"
    DCGM = "dcgm"
    NVIDIA_SMI = "nvidia_smi"


class GpuSharing(StrEnum):
    """How a device plugin gives one GPU to several pods, each of which asks for slices of it."""

    TIME_SLICING = "time-slicing"
    MPS = "mps"


class NodeGpus(Struct, frozen=True, kw_only=True):
    """GPUs of a node under one name: an extended resource's, or a DRA driver's.

    `requested` is what bound, unfinished pods ask for, or claims have allocated; `by_reservation`
    is the part of it that pods of ours ask for, by the reservation in their label. A pod's part of
    a GPU counts there as all of it: which parts share one is not known.

    Where `units_per_gpu` of the resource are one GPU, its `units` are counted too, and those of the
    memory that belongs to them (None: the node tells none). `whole_requested` GPUs of `requested`
    are pods' to themselves. `sharing`: a unit is a slice of a GPU,
    and no pod has one to itself. `is_refused`: what a unit is cannot be told, or is nothing that is
    given out: neither whole GPUs nor parts; its `capacity` is the GPUs that are known to be there.
    `note` is the label or name that says that a unit is no whole GPU, with what that means.
    """

    resource: str
    supply: GpuSupply
    capacity: Count
    allocatable: Count
    requested: Count
    by_reservation: dict[UUID, Count] = {}
    units_per_gpu: PositiveInt = 1
    allocatable_units: Count = 0
    requested_units: Count = 0
    units_by_reservation: dict[UUID, Count] = {}
    allocatable_memory_units: Count | None = None
    requested_memory_units: Count = 0
    sharing: GpuSharing | None = None
    whole_requested: Count = 0
    is_refused: bool = False
    note: str = ""


class HostAmounts(Struct, frozen=True, kw_only=True):
    """What a node has beside its GPUs, or pods ask of it; a pod counts as one of `pods`."""

    cpu_milli: Count = 0
    memory_mb: Mebibytes = 0
    ephemeral_storage_mb: Mebibytes = 0
    pods: Count = 0


class VanishedPod(Struct, frozen=True, kw_only=True):
    """A pod that left the API before its containers were known to have ended: deleted by force.

    `units` of resources are what it asked for, and may still use.
    """

    uid: str
    namespace: str
    name: str
    since_at: UtcDatetime
    units: dict[str, Count]
    reservation_id: UUID | None = None


class NodeTaint(Struct, frozen=True, kw_only=True):
    """A taint as Kubernetes has it; `effect` NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    effect: str
    value: str = ""


class ClusterGpuReading(Struct, frozen=True, kw_only=True):
    """One GPU; None is unknown."""

    index: Count
    uuid: str | None = None
    utilization_percent: Percent | None = None
    memory_used_mb: Mebibytes | None = None
    memory_total_mb: Mebibytes | None = None
    temperature_c: float | None = None


class ClusterNode(Struct, frozen=True, kw_only=True):
    """A node with GPUs.

    `node_id` is under which a telemetry agent on it reports. `hostname` is its label
    `kubernetes.io/hostname`, which node affinity names; None: it has none. `readings` are those
    of other sources than an agent, read at `readings_at`. `cuda_driver_version` is the CUDA that
    its driver serves, by its labels; None: they do not say. `allocatable_host` is what its pods may
    have beside GPUs, `requested_host` what those that are bound ask for; None: it is not known.
    What `vanished` pods may still use is not in `requested`.
    """

    name: str
    node_id: NodeId
    hostname: str | None
    is_ready: bool
    is_cordoned: bool
    gpus: tuple[NodeGpus, ...]
    taints: tuple[NodeTaint, ...] = ()
    gpu_model: str | None = None
    gpu_memory_mb: Mebibytes | None = None
    readings: tuple[ClusterGpuReading, ...] = ()
    readings_source: ReadingsSource | None = None
    readings_at: UtcDatetime | None = None
    cuda_driver_version: str | None = None
    allocatable_host: HostAmounts | None = None
    requested_host: HostAmounts = HostAmounts()
    labels: dict[str, str] = {}
    vanished: tuple[VanishedPod, ...] = ()


class ClusterChanged(Live, frozen=True, kw_only=True, tag="cluster.changed"):
    """Nodes that changed since the message before, whole, and those that have gone.

    Also sent without any, so that silence is not taken for rest. `revision` grows by one with each;
    who misses one, or meets another `boot_id`, asks `GetCluster`. Not `is_complete`: a part could
    not be listed, for `detail`; nothing may be selected by it.
    """

    key_field: ClassVar[str | None] = "cluster_id"
    cluster_id: NodeId
    boot_id: UUID
    revision: Count
    nodes: tuple[ClusterNode, ...] = ()
    removed: tuple[str, ...] = ()
    is_complete: bool = True
    detail: str = ""


class GetCluster(Query, frozen=True, kw_only=True, tag="cluster.get_cluster"):
    """All nodes with GPUs, by name, after `after_name`. Answered by `ClusterView`."""

    key_field: ClassVar[str | None] = "cluster_id"
    cluster_id: NodeId
    after_name: str | None = None


class ClusterView(View, frozen=True, kw_only=True, tag="cluster.cluster_view"):
    """Nodes as of `revision`; `next_after_name` is set where more nodes follow.

    A page of another revision than the one before: the asker starts anew.
    """

    cluster_id: NodeId
    boot_id: UUID
    revision: Count
    nodes: tuple[ClusterNode, ...]
    is_complete: bool
    detail: str = ""
    kubernetes_version: str = ""
    next_after_name: str | None = None
