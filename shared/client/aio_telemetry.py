"""What the GPUs do, for asynchronous programs, by the names that tuning scripts know.

Each queries the platform once, takes no lock and holds nothing; a program that needs GPUs for
itself requests a reservation.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from schemas.errors import ErrorCode
from schemas.gateway.views import GpuView
from shared.client.devices import node_of_indices, of_one_node
from shared.client.errors import ApiError, PlatformUnreachable
from shared.client.http import StewardClient
from shared.client.platform_query import query_platform
from shared.client.watch import Watch
from shared.clock import utcnow

DEFAULT_MAX_UTILIZATION: Final = 50


@dataclass(frozen=True, slots=True)
class GPUInfo:
    """One GPU; None is unknown. `score` is 0.6 x free memory share + 0.4 x idle share."""

    index: int
    name: str
    memory_total_mb: int | None
    memory_used_mb: int | None
    memory_free_mb: int | None
    utilization_percent: float | None
    temperature_c: float | None
    power_draw_w: float | None
    score: float | None
    uuid: str
    node_id: str
    simulated: bool


@dataclass(frozen=True, slots=True)
class GPUSnapshot:
    """The GPUs of every node at one moment, by node and index."""

    timestamp: datetime
    gpus: list[GPUInfo]


async def is_available() -> bool:
    """Return True if a platform answers and the readings of any GPU are fresh."""
    try:
        views = await query_platform(lambda client: _gpus(client, use_cache=True))
    except PlatformUnreachable:
        return False
    return any(view.fresh for view in views)


async def query_gpus(use_cache: bool = True) -> GPUSnapshot | None:
    """Readings at most 5 s old; fresh ones without cache. None if no platform answers."""
    try:
        views = await query_platform(lambda client: _gpus(client, use_cache=use_cache))
    except PlatformUnreachable:
        return None
    return GPUSnapshot(utcnow(), [_info(view) for view in views])


async def get_available_gpus(
    min_memory_mb: int | None = None,
    max_utilization: float = DEFAULT_MAX_UTILIZATION,
    *,
    node_id: str | None = None,
) -> list[int]:
    """Indices of one node's GPUs of which a request would be granted any one now, best score first.

    Without `min_memory_mb` however much of their memory is free. Unknown readings never count as
    free.
    """

    async def choose(client: StewardClient) -> list[int]:
        views = await _gpus(client, use_cache=True)
        node = node_id or node_of_indices(sorted({view.node_id for view in views}))
        if node is None:
            return []
        available = await client.available_gpus(
            node, min_memory_mb=min_memory_mb, max_utilization=max_utilization
        )
        return [gpu.index for gpu in available.gpus]

    return await query_platform(choose)


async def get_gpu_info(gpu_index: int, *, node_id: str | None = None) -> GPUInfo | None:
    """Return one node's GPU by its index; None if there is none."""
    views = await query_platform(lambda client: _gpus(client, use_cache=True))
    matching = [view for view in of_one_node(views, node_id) if view.index == gpu_index]
    return _info(matching[0]) if matching else None


_running: list[Watch] = []  # at most the one that this program started last


async def start_monitoring(
    interval_seconds: float = 1.0, *, node_id: str | None = None, max_seconds: float = 3600.0
) -> None:
    """Watch one node's GPUs until `stop_monitoring`, or for `max_seconds`.

    A program has one monitoring at a time: one that runs already is given up. `StewardClient`
    starts as many as wanted.
    """
    await stop_monitoring()
    watch = await Watch.start(node_id, max_seconds=max_seconds, interval_seconds=interval_seconds)
    _running.append(watch)


async def stop_monitoring() -> dict[str, Any] | None:
    """Stop and return the summary: duration, number of samples, and per GPU minimum, maximum and
    mean.

    Returns None if none was started, or the node's agent no longer knows it.
    """
    if not _running:
        return None
    try:
        return await _running.pop().stop()
    except ApiError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return None
        raise


def _info(view: GpuView) -> GPUInfo:
    return GPUInfo(
        index=view.index,
        name=view.name,
        memory_total_mb=view.memory_total_mb,
        memory_used_mb=view.memory_used_mb,
        memory_free_mb=view.memory_free_mb,
        utilization_percent=view.utilization_percent,
        temperature_c=view.temperature_c,
        power_draw_w=view.power_draw_w,
        score=view.availability_score,
        uuid=view.uuid,
        node_id=view.node_id,
        simulated=view.simulated,
    )


async def _gpus(client: StewardClient, *, use_cache: bool) -> tuple[GpuView, ...]:
    return (await client.gpus(use_cache=use_cache)).gpus
