"""What may be asked of the scheduler, what it grants, and the closed set of reasons to wait."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from schemas.base import (
    END,
    Count,
    DeviceUuid,
    GivenDeviceUuid,
    Line,
    Mebibytes,
    NodeId,
    Percent,
    PositiveSeconds,
    line,
)
from schemas.cluster import GpuSupply
from schemas.vgpu import VgpuForm

GpuCount = Annotated[int, Meta(ge=1, le=4096)]
ComputeCapability = Annotated[
    str, Meta(pattern=rf"^\d{{1,2}}\.\d{{1,2}}{END}", description="a compute capability, as 9.0")
]
Shares = Annotated[float, Meta(gt=0, le=4096)]
MigProfile = Annotated[
    str, Meta(pattern=rf"^\d{{1,2}}c?\.?[0-9a-z.+_]{{1,32}}{END}", description="such as 1g.10gb")
]
LeaseTtlSeconds = Annotated[float, Meta(ge=3, le=3600)]


class ReasonCode(StrEnum):
    """Why a device, a node or the whole fleet does not serve a request now."""

    HELD = "held"
    QUARANTINED = "quarantined"
    CORDONED = "cordoned"
    UNHEALTHY = "unhealthy"
    NO_READING = "no_reading"
    STALE_READING = "stale_reading"
    AWAITING_SNAPSHOT = "awaiting_snapshot"  # just released; the first reading is under way
    UTILIZATION_UNKNOWN = "utilization_unknown"
    MEMORY_UNKNOWN = "memory_unknown"
    UTILIZATION_ABOVE_LIMIT = "utilization_above_limit"
    INSUFFICIENT_FREE_MEMORY = "insufficient_free_memory"
    INSUFFICIENT_TOTAL_MEMORY = "insufficient_total_memory"
    NODE_MISMATCH = "node_mismatch"
    MODEL_MISMATCH = "model_mismatch"
    UUID_MISMATCH = "uuid_mismatch"
    COMPUTE_CAPABILITY_MISMATCH = "compute_capability_mismatch"
    CUDA_DRIVER_MISMATCH = "cuda_driver_mismatch"
    NUMA_MISMATCH = "numa_mismatch"
    LABEL_MISMATCH = "label_mismatch"
    SELECTOR_UNKNOWN = "selector_unknown"  # the node does not tell what a selector asks about
    MIG_ENABLED = "mig_enabled"  # the GPU itself; its instances are devices of their own
    FOREIGN_PROCESS = "foreign_process"  # runs there and no live reservation explains it
    NODE_LOST = "node_lost"
    NOT_ADMITTED = "not_admitted"
    INSUFFICIENT_CPU = "insufficient_cpu"
    INSUFFICIENT_HOST_MEMORY = "insufficient_host_memory"
    TOO_FEW_NODES = "too_few_nodes"
    KEPT_FOR_EARLIER = "kept_for_earlier"  # would delay the start of a request that is ahead
    TOO_FEW_DEVICES = "too_few_devices"
    MEMORY_UNBALANCED = "memory_unbalanced"
    BEHIND_IN_QUEUE = "behind_in_queue"
    NO_GPUS = "no_gpus"  # no node of this installation reports a GPU
    EXCEEDS_LARGEST_NODE = "exceeds_largest_node"
    GIVEN_OUT_BY_CLUSTER = "given_out_by_cluster"
    NOT_DIVISIBLE = "not_divisible"  # a MIG instance
    MIG_PROFILE_MISMATCH = "mig_profile_mismatch"
    MPS_PER_GPU = "mps_per_gpu"  # so that parts of several GPUs have no daemon in common
    MIG_NOT_MADE = "mig_not_made"  # a GPU of which its agent may make the instance
    SHARES_NOT_ENFORCED = "shares_not_enforced"
    INSUFFICIENT_SHARES = "insufficient_shares"
    SHARES_FRAGMENTED = "shares_fragmented"
    OVER_QUOTA = "over_quota"
    EXCEEDS_QUOTA = "exceeds_quota"  # alone more than its namespace may ever hold
    AWAITING_CLUSTER = "awaiting_cluster"  # no fresh and complete view of it
    ENDED = "ended"  # the reservation is over and waits for nothing any more


# One sentence for every code, for people: what it says, and what ends it where that is not plain.
REASON_MEANINGS: Final[Mapping[ReasonCode, str]] = {
    ReasonCode.HELD: "Another reservation holds the device until it is released or its lease ends.",
    ReasonCode.QUARANTINED: "Its last reservation has ended, but its node has not confirmed that"
    " nothing of it runs any more; an administrator may confirm it instead.",
    ReasonCode.CORDONED: "An operator, a fault or a loss took the device or its node out of"
    " service, until it is uncordoned; a loss that is over lifts its own cordon.",
    ReasonCode.UNHEALTHY: "The driver reports the device as lost, failed or hung.",
    ReasonCode.NO_READING: "No reading of the device has come yet, or its agent has stopped, so"
    " nobody knows whether it is free.",
    ReasonCode.STALE_READING: "The last reading is too old to decide on; its agent is silent.",
    ReasonCode.AWAITING_SNAPSHOT: "The device was just released; the first reading since then is"
    " under way.",
    ReasonCode.UTILIZATION_UNKNOWN: "The device does not tell its utilization, and unknown never"
    " counts as idle.",
    ReasonCode.MEMORY_UNKNOWN: "The device does not tell its memory, and unknown never counts as"
    " free.",
    ReasonCode.UTILIZATION_ABOVE_LIMIT: "Something that no reservation explains uses the device"
    " more than the request's limit.",
    ReasonCode.INSUFFICIENT_FREE_MEMORY: "Something that no reservation explains leaves less memory"
    " free than the request needs.",
    ReasonCode.INSUFFICIENT_TOTAL_MEMORY: "The device has less memory in all than the request"
    " needs; this never changes.",
    ReasonCode.NODE_MISMATCH: "The request names nodes, and this is none of them.",
    ReasonCode.MODEL_MISMATCH: "The request names GPU models, and this is none of them.",
    ReasonCode.UUID_MISMATCH: "The request names devices, and this is none of them.",
    ReasonCode.COMPUTE_CAPABILITY_MISMATCH: "The request does not select its compute capability.",
    ReasonCode.CUDA_DRIVER_MISMATCH: "The request does not select the CUDA of the node's driver.",
    ReasonCode.NUMA_MISMATCH: "The request does not select the device's NUMA node.",
    ReasonCode.LABEL_MISMATCH: "The node's labels are not those that the request selects.",
    ReasonCode.SELECTOR_UNKNOWN: "The node or device does not tell what a selector asks about, and"
    " unknown matches nothing.",
    ReasonCode.MIG_ENABLED: "The GPU is divided into MIG instances, which are devices of their own;"
    " the GPU itself is not granted.",
    ReasonCode.FOREIGN_PROCESS: "A process runs on the device that no live reservation explains.",
    ReasonCode.NODE_LOST: "The node is lost; it returns to service a while after it reports again.",
    ReasonCode.NOT_ADMITTED: "The node is new here; nothing is granted there until an administrator"
    " admits it with `gpusteward node admit NODE`.",
    ReasonCode.INSUFFICIENT_CPU: "Too few of the node's CPUs are free of reservations.",
    ReasonCode.INSUFFICIENT_HOST_MEMORY: "Too little of the node's memory is free of reservations.",
    ReasonCode.TOO_FEW_NODES: "Fewer nodes have room now than the request asks for together.",
    ReasonCode.KEPT_FOR_EARLIER: "The device is free, but taking it would delay a request that is"
    " ahead; one that is over early enough may pass.",
    ReasonCode.TOO_FEW_DEVICES: "The node has fewer devices that may be taken now than the request"
    " asks for.",
    ReasonCode.MEMORY_UNBALANCED: "The node has enough devices, but their free memory differs by"
    " more than the request allows.",
    ReasonCode.BEHIND_IN_QUEUE: "The request waits for its turn: others are ahead of it.",
    ReasonCode.NO_GPUS: "No node of this installation reports a GPU.",
    ReasonCode.EXCEEDS_LARGEST_NODE: "The request asks for more devices than any node ever has.",
    ReasonCode.GIVEN_OUT_BY_CLUSTER: "The node belongs to a Kubernetes cluster, which gives out its"
    " GPUs itself; ask for them with `cluster`.",
    ReasonCode.NOT_DIVISIBLE: "A MIG instance is granted as a whole; shares are of whole GPUs.",
    ReasonCode.MIG_PROFILE_MISMATCH: "The request is for whole GPUs and this is a MIG instance, or"
    " it is for instances of a profile and this is none of them.",
    ReasonCode.MPS_PER_GPU: "Each GPU there has an MPS daemon, so at most 1.00 of one is granted.",
    ReasonCode.MIG_NOT_MADE: "The node's agent makes the MIG instance once its slices are free.",
    ReasonCode.SHARES_NOT_ENFORCED: "Nothing on the node keeps a holder to its shares, and the"
    " request insists on it; label a node on which an MPS daemon runs `gpusteward.io/mps=true`.",
    ReasonCode.INSUFFICIENT_SHARES: "The node's devices that may be taken now have fewer shares"
    " free than the request asks for.",
    ReasonCode.SHARES_FRAGMENTED: "The node has enough shares free, but on more devices than the"
    " request allows.",
    ReasonCode.OVER_QUOTA: "Its namespace holds too much of its quota to hold this as well.",
    ReasonCode.EXCEEDS_QUOTA: "The request alone asks for more than its namespace may hold.",
    ReasonCode.AWAITING_CLUSTER: "The scheduler has no view of the Kubernetes cluster that is"
    " complete and at most 15 s old, and chooses no node by any other.",
    ReasonCode.ENDED: "The reservation is over and waits for nothing any more.",
}


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
    """What a selector looks at. `label` is a node's label, named by the selector's `label`."""

    NODE = "node"
    GPU_MODEL = "gpu_model"
    GPU_UUID = "gpu_uuid"
    COMPUTE_CAPABILITY = "compute_capability"
    CUDA_DRIVER_VERSION = "cuda_driver_version"
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


class ClusterRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPUs of one node of a Kubernetes cluster, which gives them out itself: we choose the node.

    A GPU is idle below both thresholds. Where no node has enough idle ones, and where
    `selects_node` is false, the cluster's own scheduler chooses, unless `node_names` or the
    request's `gpu_models` say which nodes may be taken. `resource` is an extended resource's name;
    None: what NVIDIA's device plugin or DRA driver offers there. `cluster_id` None: any that is
    connected, of those in the request's `node_ids`, if it has any. A node of `avoided_node_names`
    is chosen only where no other one has enough idle GPUs.
    """

    cluster_id: NodeId | None = None
    selects_node: bool = True
    utilization_threshold_percent: Percent = 30.0
    memory_threshold_percent: Percent = 50.0
    resource: Annotated[str, line(max_length=253)] | None = None
    node_names: Annotated[tuple[Line, ...], Meta(max_length=4096)] = ()
    avoided_node_names: Annotated[tuple[Line, ...], Meta(max_length=4096)] = ()


class GpuRequest(VgpuForm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whole GPUs, exclusively: `gpus` on each of `nodes` nodes, all of them or none. Or `shares`
    of the GPUs of one node: 0.25 is a quarter of one, 1.2 more than one; exactly as asked. Or, with
    `mig_profile` ("1g.10gb"), one MIG instance of those that there are.

    Empty selectors match everything. `min_memory_mb` None asks for at least half of the device's
    memory to be free. `cpu_count` and `host_memory_mb` are held on each node beside the GPUs; None
    holds none. `min_compute_capability` is asked of NVIDIA's GPUs, known by their name where they
    do not tell it; other makers' have none and are not refused for it. `require` has to match,
    `prefer` ranks. `lease_ttl_seconds` is how long a grant lives without renewal;
    `wait_timeout_seconds` how long the request may queue. With `expected_duration_seconds` it may
    start early in a gap that it will have left in time. `preemptible` lets a request of higher
    priority end it, after notice. With `cluster` the GPUs are a Kubernetes cluster's.

    Shares are multiples of the scheduler's quantum, and have as large a part of the memory. GPUs
    with less than `min_free_shares` free are left out. `unfragmented`: what fits on one GPU is not
    spread over several, and parts of several are nearly equal. `enforced_shares`: only where
    something keeps holders to their shares. `min_memory_mb` beside shares is of each whole GPU.
    """

    gpus: GpuCount = 1
    min_memory_mb: Mebibytes | None = None
    max_utilization_percent: Percent = 50.0
    node_ids: tuple[NodeId, ...] = ()
    device_uuids: tuple[GivenDeviceUuid, ...] = ()
    gpu_models: tuple[Line, ...] = ()
    balanced_memory: bool = False
    placement: Placement = Placement.PACK
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    wait_timeout_seconds: PositiveSeconds = 300.0
    lease_ttl_seconds: LeaseTtlSeconds = 30.0
    expected_duration_seconds: PositiveSeconds | None = None
    preemptible: bool = False
    nodes: Annotated[int, Meta(ge=1, le=512)] = 1
    cpu_count: Annotated[float, Meta(ge=0)] | None = None
    host_memory_mb: Mebibytes | None = None
    require: Annotated[tuple[Selector, ...], Meta(max_length=32)] = ()
    prefer: Annotated[tuple[Preference, ...], Meta(max_length=32)] = ()
    min_compute_capability: ComputeCapability | None = None
    cluster: ClusterRequest | None = None
    shares: Shares | None = None
    share_strategy: ShareStrategy = ShareStrategy.EVENLY
    min_free_shares: Annotated[float, Meta(ge=0, le=1)] = 0.0
    unfragmented: bool = False
    enforced_shares: bool = False
    mig_profile: MigProfile | None = None


class ShareKind(StrEnum):
    """How a device is divided between holders: `cooperative` ones keep to their parts themselves,
    nothing enforces it.
    """

    MPS = "mps"
    COOPERATIVE = "cooperative"


CELLS_PER_DEVICE: Final = 10_000


class CellRange(Struct, frozen=True, kw_only=True):
    """Cells of a device, from `first` to before `end`."""

    first: Annotated[int, Meta(ge=0, lt=CELLS_PER_DEVICE)]
    end: Annotated[int, Meta(gt=0, le=CELLS_PER_DEVICE)]


WHOLE_DEVICE: Final = (CellRange(first=0, end=CELLS_PER_DEVICE),)


class DeviceShare(Struct, frozen=True, kw_only=True):
    """A part of a device: of its multiprocessors, and of its memory.

    `compute_percent` and `memory_mb` are the bounds that are enforced; None means that this is not
    bounded. `shares` of the device are held, and with them `reserved_memory_mb`, enforced or not.
    `cells` are which of its 10,000, so that a node fences what had the same ones; empty: an older
    release, which does not say.
    """

    kind: ShareKind
    compute_percent: Annotated[float, Meta(gt=0, le=100)] | None = None
    memory_mb: Mebibytes | None = None
    shares: Shares | None = None
    reserved_memory_mb: Mebibytes | None = None
    cells: tuple[CellRange, ...] = ()


class DeviceGrant(Struct, frozen=True, kw_only=True):
    """A device handed to a reservation.

    `uuid` is what counts: the GPU's or MIG instance's; `index` was its node's. Without `share` all
    of it is granted. `score`, `memory_free_mb` and `utilization_percent` are what it was chosen by.
    """

    node_id: NodeId
    uuid: DeviceUuid
    index: Count
    name: str
    memory_total_mb: Mebibytes | None = None
    simulated: bool = False
    score: float | None = None
    mig_profile: str | None = None
    share: DeviceShare | None = None
    memory_free_mb: Mebibytes | None = None
    utilization_percent: float | None = None
    link_groups: tuple[Count, ...] = ()  # lowest index of each of its groups, nearest first

    @property
    def cells(self) -> tuple[CellRange, ...]:
        """What of the device is granted; all of it where the grant does not say."""
        return self.share.cells if self.share and self.share.cells else WHOLE_DEVICE


class ClusterPlacement(Struct, frozen=True, kw_only=True):
    """Where in a Kubernetes cluster a reservation's GPUs are, of which no devices are named.

    `node_name` None: the cluster's own scheduler chooses, for the reason in `message`. `hostname`
    is the node's label `kubernetes.io/hostname`. Without `resource` it is the cluster's to say.
    """

    cluster_id: NodeId
    gpus: GpuCount
    node_name: str | None = None
    hostname: str | None = None
    resource: str | None = None
    supply: GpuSupply = GpuSupply.DEVICE_PLUGIN
    message: str = ""


class Reason(Struct, frozen=True, kw_only=True):
    """One cause of waiting: a code for programs, a sentence for people, and where."""

    code: ReasonCode
    message: str
    node_id: NodeId | None = None
    device_uuid: DeviceUuid | None = None


class ChangeKind(StrEnum):
    """A part of a request that can give way; the closed set of what an explanation suggests."""

    FEWER_GPUS = "fewer_gpus"
    FEWER_NODES = "fewer_nodes"
    FEWER_SHARES = "fewer_shares"
    LESS_MEMORY = "less_memory"
    HIGHER_UTILIZATION_LIMIT = "higher_utilization_limit"
    UNBALANCED_MEMORY = "unbalanced_memory"
    LESS_CPU = "less_cpu"
    LESS_HOST_MEMORY = "less_host_memory"
    DROP_SELECTOR = "drop_selector"
    SHORTER_DURATION = "shorter_duration"
    HIGHER_PRIORITY = "higher_priority"


class Suggestion(Struct, frozen=True, kw_only=True):
    """The smallest change with which a request would be granted now, and the request so changed.

    `changes` holds one entry where one is enough; `message` says it as a sentence.
    """

    changes: tuple[ChangeKind, ...]
    request: GpuRequest
    message: str
