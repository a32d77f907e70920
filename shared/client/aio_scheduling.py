"""What would be granted, for asynchronous programs, by the names that tuning scripts know.

Each queries the platform once, takes no lock and holds nothing; a program that needs GPUs for
itself requests a reservation. `min_memory_mb` None requires no particular amount of memory.
Several GPUs are meant for tensor parallelism: their free memory is balanced unless
`balanced_memory` is false.
"""

import logging
import time
from typing import Any, Final

from msgspec.structs import replace

from schemas.cluster.node_selection import (
    MEMORY_THRESHOLD,
    UTILIZATION_THRESHOLD,
    ClusterGpu,
    NodeGpuSummary,
)
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.views import AvailabilityView
from shared.client.devices import node_of_indices
from shared.client.http import StewardClient
from shared.client.platform_query import query_platform
from shared.gpu.node_selection import selection_lines

log: Final = logging.getLogger(__name__)

DEFAULT_MIN_MEMORY_MB: Final = 8000
SHORTEST_CHECK_SECONDS: Final = 0.1


async def estimate_gpu_requirements(task_config: dict[str, Any]) -> tuple[int, int]:
    """GPUs that the largest combination of a task configuration needs, and MiB per GPU; logged."""
    estimate = await query_platform(lambda client: client.estimate(task_config))
    log.info("Estimated requirements: %d GPUs, %d MB each", estimate.gpus, estimate.min_memory_mb)
    return estimate.gpus, estimate.min_memory_mb


async def check_gpu_availability(
    required_gpus: int, min_memory_mb: int | None = None, *, balanced_memory: bool = True
) -> tuple[bool, str]:
    """Return whether this many GPUs would be granted now, and why or why not in a sentence."""
    request = _group(required_gpus, min_memory_mb, balanced_memory)
    view = await query_platform(lambda client: client.availability(request))
    return view.available, view.message


async def wait_for_gpu_availability(
    required_gpus: int,
    min_memory_mb: int | None = None,
    timeout_seconds: float = 300,
    check_interval: float = 30,
    *,
    balanced_memory: bool = True,
) -> tuple[bool, str]:
    """Wait until so many GPUs would be granted; why or why not, in a sentence.

    What the fleet can never give is answered at once. The platform answers as soon as something
    changes; `check_interval` is only how many seconds apart the status is logged meanwhile.
    """
    request = _group(required_gpus, min_memory_mb, balanced_memory)
    started_at = time.monotonic()

    async def wait(client: StewardClient) -> AvailabilityView:
        while True:
            seconds_left = max(0.0, started_at + timeout_seconds - time.monotonic())
            slice_seconds = min(seconds_left, max(check_interval, SHORTEST_CHECK_SECONDS))
            view = await client.await_availability(request, timeout_seconds=slice_seconds)
            if view.available or view.impossible or slice_seconds >= seconds_left:
                return view
            log.info(
                "Waiting for %d GPUs (%.0f of %.0f s): %s",
                *(required_gpus, time.monotonic() - started_at, timeout_seconds, view.message),
            )

    view = await query_platform(wait)
    return view.available, view.message


async def select_gpus_for_task(
    required_gpus: int,
    min_memory_mb: int = DEFAULT_MIN_MEMORY_MB,
    *,
    node_id: str | None = None,
    balanced_memory: bool = True,
) -> list[int]:
    """Indices of the GPUs that the scheduler would grant on one node, best first; freshly read.

    Reserves nothing. Raises RuntimeError if there are too few.
    """

    async def choose(client: StewardClient) -> AvailabilityView:
        views = (await client.gpus(use_cache=False)).gpus
        node = node_id or node_of_indices(sorted({view.node_id for view in views}))
        request = _group(required_gpus, min_memory_mb, balanced_memory)
        return await client.availability(
            replace(request, node_ids=(node,) if node is not None else ())
        )

    view = await query_platform(choose)
    if not view.available:
        raise RuntimeError(f"expected {required_gpus} GPUs: {view.message}")
    return [device.index for device in view.devices]


async def get_cluster_gpu_status() -> list[ClusterGpu]:
    """Return every GPU of every node, by node and index; None is unknown."""
    return list((await query_platform(lambda client: client.cluster_status())).gpus)


async def get_node_gpu_summaries(
    utilization_threshold: float = UTILIZATION_THRESHOLD,
    memory_threshold: float = MEMORY_THRESHOLD,
) -> dict[str, NodeGpuSummary]:
    """GPUs summed up by node name; idle are those below both thresholds, or without metrics."""
    summaries = await query_platform(
        lambda client: client.node_summaries(utilization_threshold, memory_threshold)
    )
    return summaries.nodes


async def find_best_node_for_deployment(
    required_gpus: int,
    utilization_threshold: float = UTILIZATION_THRESHOLD,
    memory_threshold: float = MEMORY_THRESHOLD,
) -> str | None:
    """The name of the node with the most idle GPUs; None leaves the choice to Kubernetes."""
    selection = await query_platform(
        lambda client: client.select_node(required_gpus, utilization_threshold, memory_threshold)
    )
    log.info("\n".join(selection_lines(required_gpus, selection)))
    return selection.node_id


select_best_node = find_best_node_for_deployment


def _group(gpus: int, min_memory_mb: int | None, balanced_memory: bool) -> GpuRequest:
    """GPUs for one engine. 0, as None in a `GpuRequest` requires half of each GPU's memory."""
    return GpuRequest(gpus=gpus, min_memory_mb=min_memory_mb or 0, balanced_memory=balanced_memory)
