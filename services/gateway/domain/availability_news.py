"""Which readings are worth another query of the scheduler: those that change what looks idle."""

from schemas.gateway.views import GpuMetrics, GpuView
from schemas.gpus.gpu_request import GpuRequest
from shared.gpu.free_memory import min_free_mb

Idle = dict[str, frozenset[str]]


def is_news(metrics: GpuMetrics, request: GpuRequest, idle: Idle) -> bool:
    """Return whether another set of a node's devices looks idle to this request than before.

    `idle` keeps them by node from call to call.
    """
    now = frozenset(gpu.uuid for gpu in metrics.gpus if looks_idle(gpu, request))
    idle_before = idle.get(metrics.node_id)
    idle[metrics.node_id] = now
    return now != idle_before


def looks_idle(gpu: GpuView, request: GpuRequest) -> bool:
    """Return whether the reading alone would let the GPU be granted; never for an unknown one."""
    needed = min_free_mb(request.min_memory_mb, gpu.memory_total_mb)
    return (
        needed is not None
        and gpu.memory_free_mb is not None
        and gpu.memory_free_mb >= needed
        and gpu.utilization_percent is not None
        and gpu.utilization_percent <= request.max_utilization_percent
    )
