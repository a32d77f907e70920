"""How many devices or nodes do not serve a request for each reason, in words for people."""

from collections.abc import Mapping
from typing import Final

from schemas.scheduler.reasons import ReasonCode

# What is counted, and what it is or has: "2 GPUs already held".
_COUNTED: Final[Mapping[ReasonCode, tuple[str, str]]] = {
    ReasonCode.HELD: ("GPU", "already held"),
    ReasonCode.QUARANTINED: ("GPU", "not yet confirmed empty by the node"),
    ReasonCode.CORDONED: ("GPU", "cordoned"),
    ReasonCode.UNHEALTHY: ("GPU", "unhealthy"),
    ReasonCode.NO_READING: ("GPU", "without a reading"),
    ReasonCode.STALE_READING: ("GPU", "without a recent reading"),
    ReasonCode.AWAITING_SNAPSHOT: ("GPU", "just released"),
    ReasonCode.UTILIZATION_UNKNOWN: ("GPU", "of unknown utilization"),
    ReasonCode.MEMORY_UNKNOWN: ("GPU", "of unknown memory"),
    ReasonCode.UTILIZATION_ABOVE_LIMIT: ("GPU", "in use without a reservation"),
    ReasonCode.INSUFFICIENT_FREE_MEMORY: ("GPU", "with too little free memory"),
    ReasonCode.INSUFFICIENT_TOTAL_MEMORY: ("GPU", "with too little memory"),
    ReasonCode.NODE_MISMATCH: ("GPU", "outside the nodes asked for"),
    ReasonCode.MODEL_MISMATCH: ("GPU", "of another model"),
    ReasonCode.UUID_MISMATCH: ("GPU", "not among those asked for"),
    ReasonCode.COMPUTE_CAPABILITY_MISMATCH: ("GPU", "of another compute capability"),
    ReasonCode.CUDA_DRIVER_MISMATCH: ("GPU", "with another CUDA driver"),
    ReasonCode.NUMA_MISMATCH: ("GPU", "outside the NUMA nodes asked for"),
    ReasonCode.INDEX_MISMATCH: ("GPU", "of another index"),
    ReasonCode.LABEL_MISMATCH: ("GPU", "whose node lacks the labels asked for"),
    ReasonCode.SELECTOR_UNKNOWN: ("GPU", "without what a selector asks about"),
    ReasonCode.MIG_ENABLED: ("GPU", "divided into MIG instances"),
    ReasonCode.FOREIGN_PROCESS: ("GPU", "with a process of no reservation"),
    ReasonCode.PROCESSES_UNKNOWN: ("GPU", "whose processes are unknown, with memory in use"),
    ReasonCode.NODE_LOST: ("GPU", "whose node is lost"),
    ReasonCode.NOT_ADMITTED: ("GPU", "whose node is not yet admitted"),
    ReasonCode.INSUFFICIENT_CPU: ("node", "with too few free CPUs"),
    ReasonCode.INSUFFICIENT_HOST_MEMORY: ("node", "with too little free host memory"),
    ReasonCode.TOO_FEW_NODES: ("reason", "of too few nodes at once"),
    ReasonCode.KEPT_FOR_EARLIER: ("GPU", "kept for an earlier request"),
    ReasonCode.TOO_FEW_DEVICES: ("node", "with too few free GPUs"),
    ReasonCode.MEMORY_UNBALANCED: ("node", "with unequal free memory"),
    ReasonCode.BEHIND_IN_QUEUE: ("GPU", "kept for a request ahead in the queue"),
    ReasonCode.NO_GPUS: ("reason", "of a fleet without GPUs"),
    ReasonCode.EXCEEDS_LARGEST_NODE: ("node", "smaller than the request"),
    ReasonCode.GIVEN_OUT_BY_CLUSTER: ("GPU", "given out by Kubernetes"),
    ReasonCode.NOT_DIVISIBLE: ("MIG instance", "that cannot be shared"),
    ReasonCode.MIG_PROFILE_MISMATCH: ("device", "of another MIG profile"),
    ReasonCode.MPS_PER_GPU: ("GPU", "with an MPS daemon of its own"),
    ReasonCode.MIG_NOT_MADE: ("GPU", "whose MIG instance is not made yet"),
    ReasonCode.SHARES_NOT_ENFORCED: ("GPU", "without enforced shares"),
    ReasonCode.INSUFFICIENT_SHARES: ("node", "with too few free shares"),
    ReasonCode.SHARES_FRAGMENTED: ("node", "with free shares on too many GPUs"),
    ReasonCode.MIXED_MODELS: ("node", "with GPUs of several models"),
    ReasonCode.OVER_QUOTA: ("namespace", "over its quota"),
    ReasonCode.EXCEEDS_QUOTA: ("namespace", "with a smaller quota than the request"),
    ReasonCode.AWAITING_CLUSTER: ("cluster", "not seen whole yet"),
    ReasonCode.ENDED: ("reservation", "that is over"),
}


def counts_text(counts: Mapping[ReasonCode, int]) -> str:
    """Return the counts in words, in the order of `counts`."""
    return ", ".join(count_words(code, count) for code, count in counts.items())


def count_words(code: ReasonCode, count: int, where: str = "") -> str:
    """Return `8 GPUs on gpu-03 cordoned`, with ` on gpu-03` for `where`."""
    _, how = _COUNTED[code]
    return f"{count_of(code, count)}{where} {how}"


def count_of(code: ReasonCode, count: int) -> str:
    """Return `8 GPUs` or `1 node`, whatever the code is about."""
    what, _ = _COUNTED[code]
    return f"{count} {what}{'' if count == 1 else 's'}"
