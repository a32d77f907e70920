"""Which readings are worth another query of the scheduler: those that change what looks idle."""

from schemas.gateway.views import GpuMetrics, GpuView
from schemas.gpus.gpu_request import GpuRequest
from shared.gpu.free_memory import needed_free_mb

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
    needed = needed_free_mb(request.min_memory_mb, gpu.memory_total_mb)
    return (
        needed is not None
        and gpu.memory_free_mb is not None
        and gpu.memory_free_mb >= needed
        and gpu.utilization_percent is not None
        and gpu.utilization_percent <= request.max_utilization_percent
    )
