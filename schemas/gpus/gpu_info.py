"""Which GPUs an experiment has, and how they were chosen."""

from msgspec import Struct

from schemas.base import Count, NodeId, View


class GpuInfoDetail(View, frozen=True, kw_only=True, tag="orchestrator.gpu_info_detail"):
    """One granted device, with the readings and the score it was chosen by."""

    index: Count
    name: str
    uuid: str
    node_id: NodeId
    memory_total_mb: int | None = None
    availability_score: float | None = None
    memory_free_mb: int | None = None
    utilization_percent: float | None = None


class GpuAllocation(Struct, frozen=True, kw_only=True):
    """How the GPUs of an attempt were chosen."""

    count: Count
    indices: tuple[int, ...]
    allocation_method: str
    details: tuple[GpuInfoDetail, ...] = ()


class GpuInfo(View, frozen=True, kw_only=True, tag="orchestrator.gpu_info"):
    """The GPUs of an experiment's last attempt.

    `world_size` is what its parameters say, `tp * pp * max(dp, dcp, cp)`. The allocation is
    `gpu_info`, the name that dashboards know; `indices` and the two after it repeat it.
    """

    model: str
    count: Count
    device_ids: tuple[str, ...]
    indices: tuple[int, ...]
    allocation_method: str
    simulated: bool
    details: tuple[GpuInfoDetail, ...]
    world_size: int | None = None
    gpu_info: GpuAllocation | None = None
