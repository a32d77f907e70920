"""WebSockets: live readings and progress, events from the log, and what engines write."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from litestar import WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect
from litestar.params import FromQuery, QueryParameter

from schemas.base import subject_for, tag_of
from schemas.executor import AttemptLogged, AttemptProgressed
from schemas.gateway import GpuMetrics
from schemas.orchestrator import ExperimentView, GetExperiment
from services.gateway.eventlog import EventFilter
from services.gateway.gateway import Gateway
from services.gateway.live import Watcher
from services.gateway.routes.common import TheGateway
from services.gateway.routes.history import event_filter
from shared.errors import RefusedError, UnavailableError
from shared.logging import log

Socket = WebSocket[Any, Any, Any]

SEND_SECONDS: Final = 60.0
RESOLVE_SECONDS: Final = 1.0
TRY_AGAIN_LATER: Final = 1013
EVENTS_AT_ONCE: Final = 200
LOG_MESSAGES_KEPT: Final = 32

_encode = msgspec.json.Encoder().encode


async def _serve(socket: Socket, pump: Callable[[], Awaitable[None]]) -> None:
    """Pump until the client goes: while we wait for news, only reading notices that."""
    await socket.accept()

    async def until_gone() -> None:
        with suppress(WebSocketDisconnect):
            while True:
                await socket.receive_data(mode="text")

    sending = asyncio.create_task(_pump_or_close(socket, pump))
    reading = asyncio.create_task(until_gone())
    try:
        await asyncio.wait({sending, reading}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, reading):
            task.cancel()
        await asyncio.gather(sending, reading, return_exceptions=True)


async def _pump_or_close(socket: Socket, pump: Callable[[], Awaitable[None]]) -> None:
    try:
        await pump()
    except (UnavailableError, TimeoutError) as error:
        log.info("websocket_closed", reason=repr(error))
        with suppress(Exception):
            await socket.close(code=TRY_AGAIN_LATER, reason="try again later")
    except WebSocketDisconnect:
        return
    except Exception:  # noqa: BLE001  # one client's failure is not the process's
        log.exception("websocket_failed")
        with suppress(Exception):
            await socket.close(code=1011, reason="internal")


async def _send(socket: Socket, message: object) -> None:
    """Raises TimeoutError if the client does not take it."""
    async with asyncio.timeout(SEND_SECONDS):
        await socket.send_data(_encode(message).decode(), mode="text")


@dataclass(slots=True)
class MetricsFilter:
    """Which readings and progress a client wants. An experiment's GPUs are known once granted."""

    gateway: Gateway
    node_id: FromQuery[str | None] = None
    device_uuid: FromQuery[str | None] = None
    experiment_id: FromQuery[UUID | None] = None
    devices: frozenset[tuple[str, str]] | None = None
    _looked_at: float = field(default=float("-inf"))

    async def resolve(self) -> None:
        """Find out which GPUs the experiment has, unless that was known a second ago."""
        now = asyncio.get_running_loop().time()
        if self.experiment_id is None or now - self._looked_at < RESOLVE_SECONDS:
            return
        self._looked_at = now
        query = GetExperiment(experiment_id=self.experiment_id)
        try:
            view = await self.gateway.ask(query, ExperimentView)
        except (RefusedError, UnavailableError):
            return
        if view.gpu_info is not None:
            self.devices = frozenset((d.node_id, d.uuid) for d in view.gpu_info.details)

    def of_metrics(self, metrics: GpuMetrics) -> GpuMetrics | None:
        """The wanted part; None if there is none."""
        if self.node_id not in {None, metrics.node_id}:
            return None
        if self.device_uuid is None and self.experiment_id is None:
            return metrics
        gpus = tuple(gpu for gpu in metrics.gpus if self._wants(gpu.node_id, gpu.uuid))
        return msgspec.structs.replace(metrics, gpus=gpus) if gpus else None

    def of_progress(self, progress: AttemptProgressed) -> bool:
        """Progress has no node: a filter by node or GPU leaves it out."""
        if self.experiment_id is not None:
            return progress.experiment_id == self.experiment_id
        return self.node_id is None and self.device_uuid is None

    def _wants(self, node_id: str, device_uuid: str) -> bool:
        if self.device_uuid not in {None, device_uuid}:
            return False
        return self.experiment_id is None or (node_id, device_uuid) in (self.devices or ())


@websocket("/ws/metrics")
async def watch_metrics(
    socket: Socket,
    gateway: TheGateway,
    node: FromQuery[str | None] = None,
    gpu: FromQuery[str | None] = None,
    experiment: FromQuery[UUID | None] = None,
) -> None:
    """Every new reading and progress report; a slow client gets only the newest."""
    wanted = MetricsFilter(gateway, node, gpu, experiment)
    with gateway.live.watching() as watcher:

        async def pump() -> None:
            while True:
                await watcher.wake.wait()
                await wanted.resolve()
                await _send_newest(socket, watcher, wanted)

        await _serve(socket, pump)


async def _send_newest(socket: Socket, watcher: Watcher, wanted: MetricsFilter) -> None:
    readings, progress = watcher.take()
    for metrics in readings:
        if (part := wanted.of_metrics(metrics)) is not None:
            await _send(socket, part)
    for report in progress:
        if wanted.of_progress(report):
            await _send(socket, report)


@websocket("/ws/events")
async def watch_events(
    socket: Socket,
    gateway: TheGateway,
    after: Annotated[int | None, QueryParameter(ge=0)] = None,
    event_type: Annotated[str | None, QueryParameter(name="type")] = None,
    task: FromQuery[UUID | None] = None,
    experiment: FromQuery[UUID | None] = None,
) -> None:
    """Events from a cursor on, without a gap; from now on if none is given.

    Progress passes through as well, with `cursor` null: it is not in the log and not repeated.
    """
    wanted = event_filter(event_type, task, experiment)
    start = gateway.log.cursor if after is None else after
    with gateway.live.watching() as watcher:
        watcher.take()
        await _serve(socket, lambda: _pump_events(socket, gateway, watcher, wanted, start))


async def _pump_events(
    socket: Socket, gateway: Gateway, watcher: Watcher, wanted: EventFilter, cursor: int
) -> None:
    while True:
        events, cursor = await gateway.log.read(cursor, wanted, EVENTS_AT_ONCE)
        for event in events:
            await _send(socket, event)
        for report in watcher.take()[1]:
            if (passing := _passing(report, wanted)) is not None:
                await _send(socket, passing)
        if cursor >= gateway.log.cursor:
            await _first_of(gateway.log.grown(cursor), watcher.progressed.wait())


def _passing(report: AttemptProgressed, wanted: EventFilter) -> dict[str, Any] | None:
    body = msgspec.to_builtins(report)
    if not wanted.matches(tag_of(AttemptProgressed), body):
        return None
    return {
        "cursor": None,
        "subject": subject_for(report),
        "type": tag_of(AttemptProgressed),
        "occurred_at": report.observed_at,
        "event": body,
    }


@websocket("/ws/logs")
async def watch_logs(socket: Socket, gateway: TheGateway, experiment: FromQuery[UUID]) -> None:
    """Lines of an experiment's engine as they are written, from now on.

    Where an `offset` is not the `next_offset` before it, lines were left out, also such as a slow
    client has not taken in time; `/api/v1/experiments/{id}/logs` has them from that offset on.
    """
    waiting: deque[AttemptLogged] = deque(maxlen=LOG_MESSAGES_KEPT)
    came = asyncio.Event()

    async def hear(message: AttemptLogged) -> None:
        waiting.append(message)
        came.set()

    async def pump() -> None:
        while True:
            await came.wait()
            came.clear()
            while waiting:
                await _send(socket, waiting.popleft())

    # Before the client is accepted: it hears of everything that is written from then on.
    subscription = await gateway.bus.listen(AttemptLogged, hear, key=str(experiment))
    try:
        await gateway.bus.settle()
        await _serve(socket, pump)
    finally:
        with suppress(Exception):  # the connection may be closed already
            await subscription.unsubscribe()


async def _first_of(*waits: Any) -> None:
    tasks = {asyncio.ensure_future(wait) for wait in waits}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


ROUTES = [watch_metrics, watch_events, watch_logs]
