"""What the GPUs do, as plain functions for scripts, by the names that tuning scripts know.

Each is its namesake of `shared.client.aio_telemetry`, waited for; inside an event loop use that.
"""

import asyncio
from typing import Any

from shared.client import aio_telemetry
from shared.client.aio_telemetry import DEFAULT_MAX_UTILIZATION, GPUInfo, GPUSnapshot


def is_available() -> bool:
    """Whether a platform answers and the readings of any GPU are fresh."""
    return asyncio.run(aio_telemetry.is_available())


def query_gpus(use_cache: bool = True) -> GPUSnapshot | None:
    """Readings at most 5 s old; fresh ones without cache. None if no platform answers."""
    return asyncio.run(aio_telemetry.query_gpus(use_cache))


def get_available_gpus(
    min_memory_mb: int | None = None,
    max_utilization: float = DEFAULT_MAX_UTILIZATION,
    *,
    node_id: str | None = None,
) -> list[int]:
    """Indices of one node's GPUs that nobody holds or uses, the best score first.

    Unknown readings never count as free.
    """
    return asyncio.run(
        aio_telemetry.get_available_gpus(min_memory_mb, max_utilization, node_id=node_id)
    )


def get_gpu_info(gpu_index: int, *, node_id: str | None = None) -> GPUInfo | None:
    """One node's GPU by its index, None if there is none."""
    return asyncio.run(aio_telemetry.get_gpu_info(gpu_index, node_id=node_id))


def start_monitoring(
    interval_seconds: float = 1.0, *, node_id: str | None = None, max_seconds: float = 3600.0
) -> None:
    """Watch one node's GPUs until `stop_monitoring`, or for `max_seconds`.

    A program has one monitoring at a time: one that runs already is given up.
    """
    asyncio.run(
        aio_telemetry.start_monitoring(interval_seconds, node_id=node_id, max_seconds=max_seconds)
    )


def stop_monitoring() -> dict[str, Any] | None:
    """What was seen: duration, number of samples, and per GPU minimum, maximum and mean.

    None if none was started, or the node's agent knows nothing of it any more.
    """
    return asyncio.run(aio_telemetry.stop_monitoring())
