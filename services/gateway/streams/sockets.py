"""WebSockets: live samples and progress, events from the log, and what engines write."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Hashable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from litestar import Router, WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect
from litestar.params import FromQuery, QueryParameter

from schemas.base import subject_for, tag_of
from schemas.executor.attempts import AttemptProgressed
from schemas.executor.logs import AttemptLogged
from schemas.gateway import endpoints
from schemas.gateway.views import GpuMetrics
from schemas.orchestrator.experiments import ExperimentState
from schemas.orchestrator.views import (
    ExperimentList,
    ExperimentView,
    GetExperiment,
    ListExperiments,
)
from schemas.scheduler.reservations import LIVE_STATES, experiment_of_holder
from schemas.scheduler.views import ListReservations, ReservationList
from services.gateway.context import Gateway
from services.gateway.domain.access import Identity
from services.gateway.domain.event_filter import EventFilter, subjects_of
from services.gateway.domain.visibility import visible_metrics
from services.gateway.http.access_control import SEND
from services.gateway.http.server import SEND_FRAME
from services.gateway.live_state import ReceivedSample, Watcher
from services.gateway.routes.common import (
    Caller,
    InNamespace,
    OnNode,
    Rate,
    TheGateway,
    refuse_bad_parameters,
    whole_number,
)
from services.gateway.routes.history import event_filter
from services.gateway.shared_json import SharedJson
from shared.errors import RefusedError, UnavailableError
from shared.logging import log
from shared.waiting import cancel_and_wait

Socket = WebSocket[Any, Any, Any]

RESOLVE_SECONDS: Final = 1.0
TRY_AGAIN_LATER: Final = 1013
INTERNAL_ERROR: Final = 1011
EVENTS_AT_ONCE: Final = 200
LOG_MESSAGES_BUFFERED: Final = 32
AGE_DIGITS: Final = 2

UNDER_WAY: Final = (ExperimentState.STARTING, ExperimentState.RUNNING)

_encode = msgspec.json.Encoder().encode


async def _serve(socket: Socket, messages: AsyncGenerator[object, None]) -> None:
    """Send until the client goes; close with 1013 where an owner is away.

    Sent by a task of its own, which is woken without the frames of what admitted the client.
    """
    await socket.accept()
    sending = asyncio.ensure_future(_send_all(socket, messages))
    leaving = asyncio.ensure_future(_wait_until_gone(socket))
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait(sending, leaving)


async def _wait_until_gone(socket: Socket) -> None:
    with suppress(WebSocketDisconnect):
        while True:
            await socket.receive_data("text")


async def _send_all(socket: Socket, messages: AsyncGenerator[object, None]) -> None:
    send = socket.scope["state"][SEND]
    try:
        async with aclosing(messages):
            async for message in messages:
                try:
                    if isinstance(message, SharedJson):
                        await send({"type": SEND_FRAME, "frame": message.frame})
                    else:
                        await send({"type": "websocket.send", "text": _encode(message).decode()})
                except (OSError, RuntimeError):
                    return  # as uvicorn says that the client went, in a message or before it
    except UnavailableError as error:
        log.info("websocket_closed", reason=repr(error))
        await _close(socket, TRY_AGAIN_LATER, "try again later")
    except Exception:  # noqa: BLE001  # one client's failure is not the process's
        log.exception("websocket_failed")
        await _close(socket, INTERNAL_ERROR, "internal")


async def _close(socket: Socket, code: int, reason: str) -> None:
    with suppress(Exception):  # the client may have gone meanwhile
        await socket.close(code=code, reason=reason)


@dataclass(slots=True)
class MetricsFilter:
    """Which samples and progress a client wants. An experiment's GPUs are known once granted, a
    task's are those of its experiments under way, a namespace's those of its reservations.
    """

    gateway: Gateway
    identity: Identity
    node_id: str | None = None
    device_uuid: str | None = None
    experiment_id: UUID | None = None
    task_id: UUID | None = None
    namespace: str | None = None
    experiments: frozenset[str] = frozenset()
    devices: frozenset[tuple[str, str]] = frozenset()
    _namespaces: dict[UUID, str | None] = field(default_factory=dict)
    _resolved_at: float = field(default=float("-inf"))
    # All that its part of a sample depends on. Clients that are sent it at about the same time
    # share it.
    _key: Hashable = field(init=False)
    wants_all_gpus: bool = field(init=False)

    def __post_init__(self) -> None:
        self.wants_all_gpus = {self.experiment_id, self.task_id, self.namespace} == {None}
        self._want(self.devices)

    def _want(self, devices: frozenset[tuple[str, str]]) -> None:
        self.devices = devices
        shown_devices = None if self.wants_all_gpus else devices
        self._key = (self.device_uuid, shown_devices, self.identity.readable)

    async def resolve(self) -> None:
        """Find out which GPUs are meant, unless that was known a second ago."""
        now = asyncio.get_running_loop().time()
        if now - self._resolved_at < RESOLVE_SECONDS:
            return
        self._resolved_at = now
        try:
            devices = await self._experiments_devices()
            if self.namespace is not None:
                held_devices, self.experiments = await self._namespaces_devices(self.namespace)
                devices = held_devices if devices is None else devices & held_devices
        except (RefusedError, UnavailableError):
            return
        self._want(devices or frozenset())

    def of_sample(
        self, received: ReceivedSample, age_seconds: float, skipped: int
    ) -> SharedJson | None:
        """Return the wanted part, as the client may see it; None if there is none."""
        if self.node_id is not None and self.node_id != received.sample.node_id:
            return None
        made = received.encoded.get(self._key)
        if made is not None and made[0] == age_seconds and made[1] == skipped:
            return made[2]
        if (part := self._of_metrics(received.metrics)) is None:
            return None
        part = msgspec.structs.replace(part, age_seconds=age_seconds, skipped=skipped)
        encoded = SharedJson(_encode(part))
        received.encoded[self._key] = (age_seconds, skipped, encoded)
        return encoded

    def _of_metrics(self, metrics: GpuMetrics) -> GpuMetrics | None:
        if self.device_uuid is None and self.wants_all_gpus:
            return visible_metrics(metrics, self.identity)
        gpus = tuple(gpu for gpu in metrics.gpus if self._wants(gpu.node_id, gpu.uuid))
        if not gpus:
            return None
        return visible_metrics(msgspec.structs.replace(metrics, gpus=gpus), self.identity)

    async def may_see(self, task_id: UUID) -> bool:
        """Return whether progress of this task may be shown to the client. Raises
        UnavailableError.
        """
        if self.identity.reads_everything:
            return True
        if self._namespaces.get(task_id) is None:
            self._namespaces[task_id] = await self.gateway.log.namespace_of(task_id)
        return self.identity.reads(self._namespaces[task_id])

    def of_progress(self, progress: AttemptProgressed) -> bool:
        """Progress has no node: a filter by node or GPU leaves it out."""
        if self.wants_all_gpus:
            return self.node_id is None and self.device_uuid is None
        return (
            self.task_id in {None, progress.task_id}
            and self.experiment_id in {None, progress.experiment_id}
            and (self.namespace is None or str(progress.experiment_id) in self.experiments)
        )

    async def _experiments_devices(self) -> frozenset[tuple[str, str]] | None:
        if self.experiment_id is None and self.task_id is None:
            return None
        infos = [view.gpu_info for view in await self._experiments() if view.gpu_info is not None]
        return frozenset((d.node_id, d.uuid) for info in infos for d in info.details)

    async def _namespaces_devices(
        self, namespace: str
    ) -> tuple[frozenset[tuple[str, str]], frozenset[str]]:
        """Return the devices that a namespace holds, and for which experiments."""
        query = ListReservations(namespace=namespace, states=tuple(LIVE_STATES), limit=1000)
        reservation_list = await self.gateway.fetch_list(
            query, ReservationList, "reservations", all_pages=True
        )
        return (
            frozenset(
                (d.node_id, d.uuid) for view in reservation_list.reservations for d in view.devices
            ),
            frozenset(experiment_of_holder(view.holder) for view in reservation_list.reservations),
        )

    async def _experiments(self) -> list[ExperimentView]:
        if self.experiment_id is not None:
            query = GetExperiment(experiment_id=self.experiment_id)
            return [await self.gateway.bus.query(query, ExperimentView)]
        under_way = ListExperiments(task_id=self.task_id, states=UNDER_WAY, limit=5000)
        experiment_list = await self.gateway.fetch_list(under_way, ExperimentList, "experiments")
        return list(experiment_list.experiments)

    def _wants(self, node_id: str, device_uuid: str) -> bool:
        if self.device_uuid not in {None, device_uuid}:
            return False
        return self.wants_all_gpus or (node_id, device_uuid) in self.devices


@websocket(endpoints.WATCH_METRICS.path)
async def watch_metrics(
    socket: Socket,
    gateway: TheGateway,
    identity: Caller,
    node_id: OnNode = None,
    device_uuid: FromQuery[str | None] = None,
    experiment_id: FromQuery[UUID | None] = None,
    task_id: FromQuery[UUID | None] = None,
    namespace: InNamespace = None,
    rate: Rate = None,
) -> None:
    """The newest sample of every node, then every new one and progress report; a slow client gets
    only the newest.
    """
    criteria = await metrics_filter(
        gateway, identity, node_id, device_uuid, experiment_id, task_id, namespace
    )
    await _serve(socket, metrics_messages(gateway, criteria, rate))


async def metrics_filter(
    gateway: Gateway,
    identity: Identity,
    node_id: str | None,
    device_uuid: str | None,
    experiment_id: UUID | None,
    task_id: UUID | None,
    namespace: str | None,
) -> MetricsFilter:
    """Raises RefusedError for what this caller does not see."""
    if namespace is not None:
        identity.namespace_to_read(namespace)
    if not identity.reads_everything and experiment_id is not None:
        await gateway.experiment(experiment_id, identity)
    if not identity.reads_everything and task_id is not None:
        await gateway.task(task_id, identity)
    return MetricsFilter(gateway, identity, node_id, device_uuid, experiment_id, task_id, namespace)


async def metrics_messages(
    gateway: Gateway, criteria: MetricsFilter, rate: float | None
) -> AsyncGenerator[object, None]:
    """Yield readings and progress, at most `rate` samples of a node each second."""
    with gateway.live.watching() as watcher:
        while True:
            await watcher.wait()
            if not criteria.wants_all_gpus:
                await criteria.resolve()
            now = gateway.live.monotonic()
            samples, progress = watcher.take()
            for received, skipped in samples:
                age_seconds = round(max(0.0, now - received.at), AGE_DIGITS)
                if (part := criteria.of_sample(received, age_seconds, skipped)) is not None:
                    yield part
            for report in progress:
                if criteria.of_progress(report) and await criteria.may_see(report.task_id):
                    yield report
            if rate is not None:
                await asyncio.sleep(1 / rate)


@websocket(endpoints.WATCH_EVENTS.path)
async def watch_events(
    socket: Socket,
    gateway: TheGateway,
    identity: Caller,
    after: Annotated[int | None, whole_number(0)] = None,
    event_type: Annotated[str | None, QueryParameter(name="type")] = None,
    task_id: FromQuery[UUID | None] = None,
    experiment_id: FromQuery[UUID | None] = None,
    reservation_id: FromQuery[UUID | None] = None,
) -> None:
    """Events from a cursor on, without a gap; from now on if none is given.

    Those of a task include its experiments', attempts' and reservations'. Progress passes through
    as well, with `cursor` null: it is not in the log and not repeated.
    """
    criteria = event_filter(identity, event_type, task_id, experiment_id, reservation_id)
    with gateway.live.watching() as watcher:
        await _serve(socket, event_messages(gateway, watcher, criteria, after))


async def event_messages(
    gateway: Gateway, watcher: Watcher, criteria: EventFilter, after_id: int | None
) -> AsyncGenerator[object, None]:
    """Yield events after a cursor, or from now on if there is none."""
    cursor = gateway.log.cursor if after_id is None else after_id
    watcher.take()
    while True:
        watcher.news.clear()
        events, cursor = await gateway.log.read(cursor, criteria, EVENTS_AT_ONCE)
        for event in events:
            yield event
        for report in watcher.take()[1]:
            if (passing := await _passing(gateway, report, criteria)) is not None:
                yield passing
        if cursor >= gateway.log.cursor:
            await watcher.news.wait()


async def _passing(
    gateway: Gateway, report: AttemptProgressed, criteria: EventFilter
) -> dict[str, Any] | None:
    body = msgspec.to_builtins(report)
    about = subjects_of(body)
    if criteria.readable is not None:
        namespace = await gateway.log.namespace_of(report.task_id)
        about = msgspec.structs.replace(about, namespace=namespace)
    if not criteria.matches(tag_of(AttemptProgressed), about):
        return None
    return {
        "cursor": None,
        "subject": subject_for(report),
        "type": tag_of(AttemptProgressed),
        "occurred_at": report.observed_at,
        "event": body,
    }


@websocket(endpoints.WATCH_LOGS.path)
async def watch_logs(
    socket: Socket, gateway: TheGateway, identity: Caller, experiment_id: FromQuery[UUID]
) -> None:
    """Lines of an experiment's engine as they are written, from now on.

    Where an `offset` is not the `next_offset` before it, lines were left out, also such as a slow
    client has not taken in time; `/api/v1/experiments/{id}/logs` has them from that offset on.
    """
    if not identity.reads_everything:
        await gateway.experiment(experiment_id, identity)
    unsent: deque[AttemptLogged] = deque(maxlen=LOG_MESSAGES_BUFFERED)
    received = asyncio.Event()

    async def on_logged(message: AttemptLogged) -> None:
        unsent.append(message)
        received.set()

    async def lines() -> AsyncGenerator[object, None]:
        while True:
            await received.wait()
            received.clear()
            while unsent:
                yield unsent.popleft()

    # Before the client is accepted: it gets everything that is written from then on.
    subscription = await gateway.bus.listen(AttemptLogged, on_logged, key=str(experiment_id))
    try:
        await gateway.bus.flush()
        await _serve(socket, lines())
    finally:
        with suppress(Exception):  # the connection may be closed already
            await subscription.unsubscribe()


ROUTES = [
    Router(
        "/",
        route_handlers=[watch_metrics, watch_events, watch_logs],
        guards=[refuse_bad_parameters],
    )
]
