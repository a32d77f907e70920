"""What would be granted, as plain functions for scripts, by the names that tuning scripts know.

Each is its namesake of `shared.client.aio_scheduling`, waited for; inside an event loop use that.
"""

import asyncio
from typing import Any

from schemas.scheduler_views import ClusterGpu, NodeGpuSummary
from shared.client import aio_scheduling
from shared.client.aio_scheduling import (
    DEFAULT_MIN_MEMORY_MB,
    MEMORY_THRESHOLD,
    UTILIZATION_THRESHOLD,
)


def estimate_gpu_requirements(task_config: dict[str, Any]) -> tuple[int, int]:
    """GPUs that the largest combination of a task configuration needs, and MiB per GPU."""
    return asyncio.run(aio_scheduling.estimate_gpu_requirements(task_config))


def check_gpu_availability(
    required_gpus: int, min_memory_mb: int | None = None
) -> tuple[bool, str]:
    """Whether so many GPUs would be granted now, and the sentence that says why or why not."""
    return asyncio.run(aio_scheduling.check_gpu_availability(required_gpus, min_memory_mb))


def wait_for_gpu_availability(
    required_gpus: int,
    min_memory_mb: int | None = None,
    timeout_seconds: float = 300,
    check_interval: float = 30,
) -> tuple[bool, str]:
    """Wait until so many GPUs would be granted; the sentence says why or why not.

    The platform tells when something changes, so `check_interval` is accepted and has no effect.
    """
    return asyncio.run(
        aio_scheduling.wait_for_gpu_availability(
            required_gpus, min_memory_mb, timeout_seconds, check_interval
        )
    )


def select_gpus_for_task(
    required_gpus: int, min_memory_mb: int = DEFAULT_MIN_MEMORY_MB, *, node_id: str | None = None
) -> list[int]:
    """Indices of the GPUs that the scheduler would grant on one node, best first; freshly read.

    Reserves nothing. Raises RuntimeError if there are too few.
    """
    return asyncio.run(
        aio_scheduling.select_gpus_for_task(required_gpus, min_memory_mb, node_id=node_id)
    )


def get_cluster_gpu_status() -> list[ClusterGpu]:
    """Every GPU of every node, by node and index; None is unknown."""
    return asyncio.run(aio_scheduling.get_cluster_gpu_status())


def get_node_gpu_summaries(
    utilization_threshold: float = UTILIZATION_THRESHOLD,
    memory_threshold: float = MEMORY_THRESHOLD,
) -> dict[str, NodeGpuSummary]:
    """GPUs summed up by node name; idle are those below both thresholds, or without metrics."""
    return asyncio.run(
        aio_scheduling.get_node_gpu_summaries(utilization_threshold, memory_threshold)
    )


def find_best_node_for_deployment(
    required_gpus: int,
    utilization_threshold: float = UTILIZATION_THRESHOLD,
    memory_threshold: float = MEMORY_THRESHOLD,
) -> str | None:
    """The name of the node with the most idle GPUs; None leaves the choice to Kubernetes."""
    return asyncio.run(
        aio_scheduling.find_best_node_for_deployment(
            required_gpus, utilization_threshold, memory_threshold
        )
    )


select_best_node = find_best_node_for_deployment
