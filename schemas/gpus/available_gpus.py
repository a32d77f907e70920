"""Which GPUs of a node are free, by the scheduler's one rule."""

from msgspec import Struct

from schemas.base import Count, DeviceUuid, Mebibytes, NodeId, Percent, Query, View


class ListAvailableGpus(Query, frozen=True, kw_only=True, tag="scheduler.available_gpus"):
    """Of which of a node's GPUs would a request be granted any one now? Answered by
    `AvailableGpus`; reserves nothing.

    `min_memory_mb` None asks for no particular amount.
    """

    node_id: NodeId
    min_memory_mb: Mebibytes | None = None
    max_utilization_percent: Percent = 50.0


class ScoredGpu(Struct, frozen=True, kw_only=True):
    """A GPU and its score: 0.6 x free share of memory + 0.4 x idle share."""

    index: Count
    uuid: DeviceUuid
    score: float


class AvailableGpus(View, frozen=True, kw_only=True, tag="scheduler.available_gpus_view"):
    """Best score first. A GPU whose memory or utilization is unknown is not among them."""

    node_id: NodeId
    gpus: tuple[ScoredGpu, ...]
