"""What may be asked of the scheduler."""

from enum import StrEnum
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from schemas.base import (
    END,
    GivenDeviceUuid,
    Line,
    Mebibytes,
    NodeId,
    Percent,
    PositiveInt,
    PositiveSeconds,
    line,
)
from schemas.gpus.vgpu import vgpu_fields

GpuCount = Annotated[int, Meta(ge=1, le=4096)]
ComputeCapability = Annotated[
    str, Meta(pattern=rf"^\d{{1,2}}\.\d{{1,2}}{END}", description="a compute capability, as 9.0")
]
Shares = Annotated[float, Meta(gt=0, le=4096)]
MigProfile = Annotated[
    str, Meta(pattern=rf"^\d{{1,2}}c?\.?[0-9a-z.+_]{{1,32}}{END}", description="such as 1g.10gb")
]
LeaseTtlSeconds = Annotated[float, Meta(ge=3, le=3600)]


ShareUnits = Annotated[int, Meta(ge=1, le=409_600)]
WHOLE: Final = 100  # a GPU in hundredths, which shares are counted in


class Placement(StrEnum):
    """`pack` fills the fullest node that fits, `spread` takes the emptiest."""

    PACK = "pack"
    SPREAD = "spread"


class ShareStrategy(StrEnum):
    """How shares that do not fit on one device are divided among those of a node.

    `evenly` takes the fewest devices and of each about the same; one device if that can hold all.
    `fill` takes all that the emptiest has, then of the next.
    """

    EVENLY = "evenly"
    FILL = "fill"


class SelectorKey(StrEnum):
    """What a selector compares. `label` is a node's label, named by the selector's `label`."""

    NODE = "node"
    GPU_MODEL = "gpu_model"
    GPU_UUID = "gpu_uuid"
    COMPUTE_CAPABILITY = "compute_capability"
    CUDA_DRIVER_VERSION = "cuda_driver_version"
    GPU_INDEX = "gpu_index"
    NUMA_NODE = "numa_node"
    LABEL = "label"


class SelectorOperator(StrEnum):
    """How it is compared. `at_least` and `at_most` compare versions number by number."""

    IN = "in"
    NOT_IN = "not_in"
    AT_LEAST = "at_least"
    AT_MOST = "at_most"
    EXISTS = "exists"


class Selector(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A condition on a device or its node.

    `in` and `not_in` take any number of `values`, `at_least` and `at_most` one, `exists` none.
    `gpu_model` matches a part of the name, without regard to case. What is unknown matches nothing.
    """

    key: SelectorKey
    operator: SelectorOperator = SelectorOperator.IN
    values: Annotated[tuple[Line, ...], Meta(max_length=64)] = ()
    label: Annotated[str, line(max_length=253)] | None = None


class Preference(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A selector that is liked, not needed: devices that match come first, by the sum of
    weights.
    """

    selector: Selector
    weight: Annotated[int, Meta(ge=1, le=100)] = 1


class NodeRanking(StrEnum):
    """Which of a cluster's nodes with enough idle GPUs is taken: the one with the most of them, or
    the one on which the fewest are left over, so that large groups stay whole elsewhere.
    """

    MOST_IDLE = "most_idle"
    LEAST_FRAGMENTING = "least_fragmenting"


class ClusterRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPUs of one node of a Kubernetes cluster, which gives them out itself: we choose the node.

    A GPU is idle below both thresholds. Where no node has enough idle ones, and where
    `selects_node` is false, the cluster's own scheduler chooses, unless `node_names` or the
    request's `gpu_models` say which nodes may be taken. `resource` is an extended resource's name;
    None: what NVIDIA's device plugin or DRA driver offers there. `cluster_id` None: any that is
    connected, of those in the request's `node_ids`, if it has any. A node of `avoided_node_names`
    is chosen only where no other one has enough idle GPUs.

    `pod_cpu_count`, `pod_memory_mb` and `pod_ephemeral_storage_mb` are what the pod asks of its
    node beside GPUs; None: the request's `cpu_count` and `host_memory_mb`, and no storage. A node
    without room for them is not chosen.

    `units` of `resource` are a part of one GPU: 30 of tencent.com/vcuda-core, of which 100 are one,
    or one time slice; `memory_units` are of the memory that belongs to it. None: whole GPUs, or as
    many of what the resource counts.
    """

    cluster_id: NodeId | None = None
    selects_node: bool = True
    utilization_threshold_percent: Percent = 30.0
    memory_threshold_percent: Percent = 50.0
    resource: Annotated[str, line(max_length=253)] | None = None
    node_names: Annotated[tuple[Line, ...], Meta(max_length=4096)] = ()
    avoided_node_names: Annotated[tuple[Line, ...], Meta(max_length=4096)] = ()
    ranking: NodeRanking = NodeRanking.MOST_IDLE
    pod_cpu_count: Annotated[float, Meta(ge=0)] | None = None
    pod_memory_mb: Mebibytes | None = None
    pod_ephemeral_storage_mb: Mebibytes | None = None
    units: PositiveInt | None = None
    memory_units: PositiveInt | None = None


class DeviceWishes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which GPUs are wanted, how much of them, and what they may be taken back for.

    `require` has to match, `prefer` ranks: selectors of labels, NUMA nodes, indices, names. With
    `preemptible` a request of higher `priority` may end it, after notice. `cpu_count` and
    `host_memory_mb` are held on each node beside the GPUs; None holds none. All GPUs are of one
    model and memory size; `mixed_models` allows any that match.
    """

    min_memory_mb: Mebibytes | None = None
    device_uuids: tuple[GivenDeviceUuid, ...] = ()
    placement: Placement = Placement.PACK
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    preemptible: bool = False
    cpu_count: Annotated[float, Meta(ge=0)] | None = None
    host_memory_mb: Mebibytes | None = None
    require: Annotated[tuple[Selector, ...], Meta(max_length=32)] = ()
    prefer: Annotated[tuple[Preference, ...], Meta(max_length=32)] = ()
    shares: Shares | None = None
    share_strategy: ShareStrategy = ShareStrategy.EVENLY
    min_free_shares: Annotated[float, Meta(ge=0, le=1)] = 0.0
    enforced_shares: bool = False
    mig_profile: MigProfile | None = None
    mixed_models: bool = False


class GpuModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model of GPU by its whole name; of memory of about that size, where it is said."""

    name: Line
    memory_total_mb: Mebibytes | None = None


class GpuRequest(DeviceWishes, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whole GPUs, exclusively: `gpus` on each of `nodes` nodes, all of them or none. Or `shares`
    of the GPUs of one node: 0.25 is a quarter of one, 1.2 more than one; exactly as asked. Or, with
    `mig_profile` ("1g.10gb"), one MIG instance of those that there are.

    Empty selectors match everything. `min_memory_mb` None asks for at least half of the device's
    memory to be free. `min_compute_capability` is asked of NVIDIA's GPUs, known by their name where
    they do not report it; other makers' have none and are not refused for it. `same_model` is that
    of GPUs with which these are compared. `lease_ttl_seconds` is how long a grant lives without
    renewal; `wait_timeout_seconds` how long the request may queue. With
    `expected_duration_seconds` it may start early in a gap that it will have left in time. With
    `cluster` the GPUs are a Kubernetes cluster's.

    Shares are multiples of the scheduler's quantum, and have as large a part of the memory. GPUs
    with less than `min_free_shares` free are left out. `unfragmented`: what fits on one GPU is not
    spread over several, and parts of several are nearly equal. `enforced_shares`: only where
    something keeps holders to their shares. `min_memory_mb` beside shares is of each whole GPU.

    `share_units` are shares that are counted: 7 with `units_per_gpu` 10 are 0.7, each unit of one
    GPU. `evenly` takes them one by one of as many GPUs as have room (7 of three are 3, 2 and 2),
    `fill` all that the emptiest has, then of the next.

    `vgpu_cores` and `vgpu_memory_mb` are read as what they mean, and never seen: 1 to 99 cores are
    hundredths of one GPU that have at least this memory, multiples of 100 are whole GPUs.
    """

    gpus: GpuCount = 1
    max_utilization_percent: Percent = 50.0
    node_ids: tuple[NodeId, ...] = ()
    gpu_models: tuple[Line, ...] = ()
    balanced_memory: bool = False
    wait_timeout_seconds: PositiveSeconds = 300.0
    lease_ttl_seconds: LeaseTtlSeconds = 30.0
    expected_duration_seconds: PositiveSeconds | None = None
    nodes: Annotated[int, Meta(ge=1, le=512)] = 1
    min_compute_capability: ComputeCapability | None = None
    cluster: ClusterRequest | None = None
    unfragmented: bool = False
    same_model: GpuModel | None = None
    vgpu_cores: Annotated[int, Meta(ge=1, le=409_600)] | None = None
    vgpu_memory_mb: Mebibytes | None = None
    share_units: ShareUnits | None = None
    units_per_gpu: ShareUnits = 1

    def __post_init__(self) -> None:
        for name, value in vgpu_fields(self).items():
            force_setattr(self, name, value)
        if (shares := count_shares(self)) is not None:
            force_setattr(self, "shares", shares)


def count_shares(request: Any) -> float | None:
    """The shares that a request's units come to; None without any. Raises ValueError."""
    units, per_gpu = request.share_units, request.units_per_gpu
    if units is None:
        if per_gpu != 1:
            raise ValueError("expected `share_units` with `units_per_gpu`")
        return None
    if WHOLE % per_gpu:
        raise ValueError(f"expected `units_per_gpu` of which 100 is a multiple, got {per_gpu}")
    shares: float = units * (WHOLE // per_gpu) / WHOLE
    if request.shares not in (None, shares):
        raise ValueError("expected one of `shares` and `share_units`")
    if request.unfragmented:
        raise ValueError("expected no `unfragmented` with `share_units`, which are spread")
    return shares
