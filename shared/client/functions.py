"""Plain functions for scripts, by the names that tuning scripts know.

Each finds the platform as the command line does and asks it once. They take no lock and hold
nothing; whoever needs GPUs kept asks for a reservation. An index counts within one node: this host
if the platform knows it, else the only node there is, else the `node_id` that has to be given.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from schemas.executor import AttemptProgressed
from schemas.gateway import GpuMetrics, GpuView, StoredEvent
from schemas.gpu_request import GpuRequest
from schemas.scheduler import DeviceState
from schemas.scheduler_views import AvailabilityView
from schemas.telemetry import HealthState
from shared.client.discovery import find_address
from shared.client.errors import PlatformUnreachable
from shared.client.http import StewardClient
from shared.errors import StewardError
from shared.ids import host_node_id

T = TypeVar("T")
DEFAULT_MIN_MEMORY_MB: Final = 8000
DEFAULT_MAX_UTILIZATION: Final = 50
RECONNECT_SECONDS: Final = 0.5


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


def is_available() -> bool:
    """Whether a platform answers and any GPU is watched."""
    snapshot = query_gpus()
    return snapshot is not None and bool(snapshot.gpus)


def query_gpus(use_cache: bool = True) -> GPUSnapshot | None:
    """The last readings, at most 5 s old; fresh ones without cache. None if no platform answers."""
    try:
        views = _ask(lambda client: _gpus(client, use_cache=use_cache))
    except PlatformUnreachable:
        return None
    return GPUSnapshot(datetime.now(UTC), [_info(view) for view in views])


def get_available_gpus(
    min_memory_mb: int | None = None,
    max_utilization: int = DEFAULT_MAX_UTILIZATION,
    *,
    node_id: str | None = None,
) -> list[int]:
    """Indices of one node's GPUs that nobody holds or uses, the best score first.

    Unknown readings never count as free.
    """
    views = _ask(lambda client: _gpus(client, use_cache=True))
    free = [v for v in of_one_node(views, node_id) if is_free(v, min_memory_mb, max_utilization)]
    return [view.index for view in sorted(free, key=_by_score)]


def get_gpu_info(gpu_index: int, *, node_id: str | None = None) -> GPUInfo | None:
    """One node's GPU by its index, None if there is none."""
    views = _ask(lambda client: _gpus(client, use_cache=True))
    matching = [view for view in of_one_node(views, node_id) if view.index == gpu_index]
    return _info(matching[0]) if matching else None


def estimate_gpu_requirements(task_config: dict[str, Any]) -> tuple[int, int]:
    """GPUs that the largest combination of a task configuration needs, and MiB per GPU."""
    estimate = _ask(lambda client: client.estimate(task_config))
    return estimate.gpus, estimate.min_memory_mb


def check_gpu_availability(
    required_gpus: int, min_memory_mb: int | None = None
) -> tuple[bool, str]:
    """Whether so many GPUs would be granted now, and the sentence that says why or why not."""
    request = GpuRequest(gpus=required_gpus, min_memory_mb=min_memory_mb)
    view = _ask(lambda client: client.availability(request))
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
    view = _ask(lambda client: await_availability(client, request, timeout_seconds))
    return view.available, view.message


def select_gpus_for_task(
    required_gpus: int, min_memory_mb: int = DEFAULT_MIN_MEMORY_MB, *, node_id: str | None = None
) -> list[int]:
    """Indices of the GPUs that the scheduler would grant on one node. Reserves nothing.

    Raises RuntimeError if there are too few.
    """

    async def choose(client: StewardClient) -> AvailabilityView:
        views = await _gpus(client, use_cache=False)
        node = node_id or node_of_indices(sorted({view.node_id for view in views}))
        return await client.availability(
            GpuRequest(
                gpus=required_gpus,
                min_memory_mb=min_memory_mb,
                node_ids=(node,) if node is not None else (),
            )
        )

    view = _ask(choose)
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


def is_free(view: GpuView, min_memory_mb: int | None, max_utilization: float) -> bool:
    """Whether this device is healthy, unheld, and known to be idle enough."""
    return (
        view.health is HealthState.OK
        and view.fresh
        and view.state in {None, DeviceState.FREE}
        and view.memory_free_mb is not None
        and view.memory_free_mb >= _needed_memory_mb(view, min_memory_mb)
        and view.utilization_percent is not None
        and view.utilization_percent <= max_utilization
    )


def of_one_node(views: Sequence[GpuView], node_id: str | None) -> list[GpuView]:
    """The GPUs of the node whose indices are meant."""
    node = node_id or node_of_indices(sorted({view.node_id for view in views}))
    return [view for view in views if view.node_id == node]


def node_of_indices(nodes: Sequence[str]) -> str | None:
    """This host, else the only node; None if there is none. Raises ValueError if it is unclear."""
    here = host_node_id()
    if here in nodes:
        return here
    if len(nodes) > 1:
        raise ValueError(f"expected node_id to be one of {', '.join(nodes)}")
    return nodes[0] if nodes else None


def _needed_memory_mb(view: GpuView, min_memory_mb: int | None) -> float:
    if min_memory_mb is not None:
        return min_memory_mb
    # What the scheduler asks for when a request does not say.
    return view.memory_total_mb / 2 if view.memory_total_mb is not None else float("inf")


def _by_score(view: GpuView) -> tuple[float, int]:
    return (-(view.availability_score or 0.0), view.index)


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


def _ask(question: Callable[[StewardClient], Awaitable[T]]) -> T:
    async def run() -> T:
        async with StewardClient(find_address()) as client:
            return await question(client)

    return asyncio.run(run())
