"""Why a request waits, and what would help it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from schemas.base import DeviceUuid, NodeId
from schemas.gpus.gpu_request import GpuRequest


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
    INDEX_MISMATCH = "index_mismatch"
    LABEL_MISMATCH = "label_mismatch"
    SELECTOR_UNKNOWN = "selector_unknown"  # the node does not report what a selector asks about
    MIG_ENABLED = "mig_enabled"  # the GPU itself; its instances are devices of their own
    FOREIGN_PROCESS = "foreign_process"  # runs there and no live reservation explains it
    PROCESSES_UNKNOWN = "processes_unknown"  # and memory is in use
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
    MIXED_MODELS = "mixed_models"  # enough GPUs, but of no single model and memory size
    OVER_QUOTA = "over_quota"
    EXCEEDS_QUOTA = "exceeds_quota"  # alone more than its namespace may ever hold
    AWAITING_CLUSTER = "awaiting_cluster"  # no fresh and complete view of it
    ENDED = "ended"  # the reservation is over and waits for nothing any more


# What the request itself excludes: waiting does not help there.
EXCLUDED_BY_REQUEST: Final = frozenset(
    {
        ReasonCode.NODE_MISMATCH,
        ReasonCode.UUID_MISMATCH,
        ReasonCode.MODEL_MISMATCH,
        ReasonCode.INSUFFICIENT_TOTAL_MEMORY,
        ReasonCode.COMPUTE_CAPABILITY_MISMATCH,
        ReasonCode.CUDA_DRIVER_MISMATCH,
        ReasonCode.NUMA_MISMATCH,
        ReasonCode.INDEX_MISMATCH,
        ReasonCode.LABEL_MISMATCH,
        ReasonCode.SELECTOR_UNKNOWN,
        ReasonCode.MIG_ENABLED,
        ReasonCode.NOT_DIVISIBLE,
        ReasonCode.MIG_PROFILE_MISMATCH,
        ReasonCode.SHARES_NOT_ENFORCED,
        ReasonCode.MPS_PER_GPU,
    }
)

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
    ReasonCode.UTILIZATION_UNKNOWN: "The device does not report its utilization, and unknown never"
    " counts as idle.",
    ReasonCode.MEMORY_UNKNOWN: "The device does not report its memory, and unknown never counts as"
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
    ReasonCode.INDEX_MISMATCH: "The request does not select the device's index on its node.",
    ReasonCode.LABEL_MISMATCH: "The node's labels are not those that the request selects.",
    ReasonCode.SELECTOR_UNKNOWN: "The node or device does not report what a selector asks about,"
    " and unknown matches nothing.",
    ReasonCode.MIG_ENABLED: "The GPU is divided into MIG instances, which are devices of their own;"
    " the GPU itself is not granted.",
    ReasonCode.FOREIGN_PROCESS: "A process runs on the device that no live reservation explains.",
    ReasonCode.PROCESSES_UNKNOWN: "Memory of the device is in use, and its processes cannot be"
    " listed: one of them may be nobody's.",
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
    ReasonCode.MIXED_MODELS: "There are enough GPUs, but too few of any one model and memory size;"
    " the GPUs of a request are of one, unless it says `mixed_models`.",
    ReasonCode.OVER_QUOTA: "Its namespace holds too much of its quota to hold this as well.",
    ReasonCode.EXCEEDS_QUOTA: "The request alone asks for more than its namespace may hold.",
    ReasonCode.AWAITING_CLUSTER: "The scheduler has no view of the Kubernetes cluster that is"
    " complete and at most 15 s old, and chooses no node by any other.",
    ReasonCode.ENDED: "The reservation is over and waits for nothing any more.",
}


class Reason(Struct, frozen=True, kw_only=True):
    """One cause of waiting: a code for programs, a sentence for people, and where.

    The sentence about a device begins `GPU INDEX on NODE `, the one about a node `NODE `.
    """

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
    MIXED_MODELS = "mixed_models"
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
