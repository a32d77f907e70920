"""What would be granted, as plain functions for scripts, by the names that tuning scripts know.

Each asks the platform once, takes no lock and holds nothing; whoever needs GPUs kept asks for a
reservation.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from schemas.executor import AttemptProgressed
from schemas.gateway import GpuMetrics, StoredEvent
from schemas.gpu_request import GpuRequest
from schemas.scheduler_views import AvailabilityView
from shared.client.asking import ask
from shared.client.devices import is_free, node_of_indices
from shared.client.http import StewardClient
from shared.errors import StewardError

DEFAULT_MIN_MEMORY_MB: Final = 8000
RECONNECT_SECONDS: Final = 0.5


def estimate_gpu_requirements(task_config: dict[str, Any]) -> tuple[int, int]:
    """GPUs that the largest combination of a task configuration needs, and MiB per GPU."""
    estimate = ask(lambda client: client.estimate(task_config))
    return estimate.gpus, estimate.min_memory_mb


def check_gpu_availability(
    required_gpus: int, min_memory_mb: int | None = None
) -> tuple[bool, str]:
    """Whether so many GPUs would be granted now, and the sentence that says why or why not."""
    request = GpuRequest(gpus=required_gpus, min_memory_mb=min_memory_mb)
    view = ask(lambda client: client.availability(request))
    return view.available, view.message


def wait_for_gpu_availability(
    required_gpus: int,
    min_memory_mb: int | None = None,
    timeout_seconds: int = 300,
    check_interval: int = 30,
) -> tuple[bool, str]:
    """Wait until so many GPUs would be granted; the sentence says why or why not.

    The platform tells when something changes, so `check_interval` is accepted and has no effect.
    """
    del check_interval
    request = GpuRequest(gpus=required_gpus, min_memory_mb=min_memory_mb)
    view = ask(lambda client: await_availability(client, request, timeout_seconds))
    return view.available, view.message


def select_gpus_for_task(
    required_gpus: int, min_memory_mb: int = DEFAULT_MIN_MEMORY_MB, *, node_id: str | None = None
) -> list[int]:
    """Indices of the GPUs that the scheduler would grant on one node. Reserves nothing.

    Raises RuntimeError if there are too few.
    """

    async def choose(client: StewardClient) -> AvailabilityView:
        views = (await client.gpus(use_cache=False)).gpus
        node = node_id or node_of_indices(sorted({view.node_id for view in views}))
        return await client.availability(
            GpuRequest(
                gpus=required_gpus,
                min_memory_mb=min_memory_mb,
                node_ids=(node,) if node is not None else (),
            )
        )

    view = ask(choose)
    if not view.available:
        raise RuntimeError(f"expected {required_gpus} GPUs: {view.message}")
    return [device.index for device in view.devices]


async def await_availability(
    client: StewardClient, request: GpuRequest, timeout_seconds: float
) -> AvailabilityView:
    """Ask now, and again whenever the ledger or a reading changes what may be granted."""
    changed = asyncio.Event()
    watchers = [
        asyncio.create_task(_watch_ledger(client, changed)),
        asyncio.create_task(_watch_readings(client, request, changed)),
    ]
    deadline = time.monotonic() + timeout_seconds
    try:
        while True:
            changed.clear()
            view = await client.availability(request)
            left = deadline - time.monotonic()
            if view.available or left <= 0:
                return view
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                continue
    finally:
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)


async def _watch_ledger(client: StewardClient, changed: asyncio.Event) -> None:
    async def read() -> None:
        async with client.events() as events:
            changed.set()
            async for event in events:
                if concerns_devices(event):
                    changed.set()

    await _again_and_again(read)


def concerns_devices(event: StoredEvent) -> bool:
    """Whether this fact may free a device or bring a new one."""
    return event.type.startswith(("scheduler.", "telemetry."))


async def _watch_readings(
    client: StewardClient, request: GpuRequest, changed: asyncio.Event
) -> None:
    idle: dict[str, frozenset[str]] = {}

    async def read() -> None:
        async with client.metrics() as frames:
            async for frame in frames:
                if is_news(frame, request, idle):
                    changed.set()

    await _again_and_again(read)


def is_news(
    frame: GpuMetrics | AttemptProgressed,
    request: GpuRequest,
    idle: dict[str, frozenset[str]],
) -> bool:
    """Whether a node's set of idle devices is another one than before; `idle` keeps the sets."""
    if not isinstance(frame, GpuMetrics):
        return False
    limit = request.max_utilization_percent
    now = frozenset(v.uuid for v in frame.gpus if is_free(v, request.min_memory_mb, limit))
    before = idle.get(frame.node_id)
    idle[frame.node_id] = now
    return now != before


async def _again_and_again(read: Callable[[], Awaitable[None]]) -> None:
    while True:
        with contextlib.suppress(StewardError):
            await read()
        await asyncio.sleep(RECONNECT_SECONDS)
