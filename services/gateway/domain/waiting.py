"""Which readings are worth asking the scheduler again: those that change who looks idle."""

from typing import Final

from schemas.gateway import GpuMetrics, GpuView
from schemas.gpu_request import GpuRequest

HALF: Final = 0.5  # what the scheduler asks for where a request does not say

Idle = dict[str, frozenset[str]]


def is_news(metrics: GpuMetrics, request: GpuRequest, idle: Idle) -> bool:
    """Whether a node's devices that look idle to this request are others than before.

    `idle` keeps them by node from call to call.
    """
    now = frozenset(gpu.uuid for gpu in metrics.gpus if looks_idle(gpu, request))
    before = idle.get(metrics.node_id)
    idle[metrics.node_id] = now
    return now != before


def looks_idle(gpu: GpuView, request: GpuRequest) -> bool:
    """Whether its reading alone would let it be granted; unknown never does."""
    needed = request.min_memory_mb
    if needed is None:
        if gpu.memory_total_mb is None:
            return False
        needed = int(gpu.memory_total_mb * HALF)
    return (
        gpu.memory_free_mb is not None
        and gpu.memory_free_mb >= needed
        and gpu.utilization_percent is not None
        and gpu.utilization_percent <= request.max_utilization_percent
    )
