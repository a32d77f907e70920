"""The gateway's API as typed methods."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from uuid import UUID

import aiohttp
import msgspec

from schemas.errors import Accepted, ErrorCode
from schemas.executor import AttemptProgressed
from schemas.gateway import GpuList, GpuMetrics, NodeList, Problem, StoredEvent
from schemas.gpu_request import GpuRequest
from schemas.orchestrator import (
    ExperimentList,
    ExperimentView,
    TaskList,
    TaskPlan,
    TaskState,
    TaskView,
)
from schemas.scheduler import ReservationState
from schemas.scheduler_views import (
    AllocationMap,
    AvailabilityView,
    EstimateView,
    Explanation,
    ReservationList,
    ReservationView,
)
from shared.client.discovery import Address
from shared.client.errors import ApiError, PlatformUnreachable
from shared.ids import new_id

T = TypeVar("T")
Parameters = Mapping[str, str | int | None]

API: Final = "/api/v1"
LONGEST_POLL_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 0.25
_RETRIED: Final = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE})


class _Stored(msgspec.Struct):
    """The part of an answer to a POST that every form of it has."""

    task_id: UUID | None = None
    reservation_id: UUID | None = None


class StewardClient:
    """Talks to one gateway; an asynchronous context manager.

    Every method raises ApiError when the gateway refuses, PlatformUnreachable when nothing answers.
    With `patience_seconds` an unreachable or unavailable gateway is asked again for so long;
    changes carry an idempotency key, so a repeated one is the same one.
    """

    def __init__(
        self, address: Address, *, timeout_seconds: float = 15.0, patience_seconds: float = 0.0
    ) -> None:
        self.address = address
        self._timeout_seconds = timeout_seconds
        self._patience_seconds = patience_seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        token = self.address.token
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"} if token else None,
            timeout=aiohttp.ClientTimeout(total=self._timeout_seconds),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def is_alive(self) -> bool:
        """Whether a gateway answers here at all."""
        try:
            async with self._open.get(f"{self.address.url}/healthz") as response:
                return response.status < HTTPStatus.INTERNAL_SERVER_ERROR
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def submit_task(
        self, task: bytes, *, namespace: str | None = None, command_id: UUID | None = None
    ) -> UUID:
        """Submit a task file as it is; return the task's id."""
        body = await self._send(
            "POST", "/tasks", task, {"namespace": namespace}, command_id=command_id
        )
        stored = msgspec.json.decode(body, type=_Stored)
        if stored.task_id is None:
            raise self._unreadable("POST /tasks", "no task_id")
        return stored.task_id

    async def validate_task(self, task: bytes) -> TaskPlan:
        """What the task would become; nothing is stored."""
        return self._decoded(await self._send("POST", "/tasks/validate", task), TaskPlan)

    async def tasks(
        self, *, namespace: str | None = None, states: Iterable[TaskState] = (), limit: int = 100
    ) -> tuple[TaskView, ...]:
        """Tasks, newest first."""
        parameters = {"namespace": namespace, "state": _joined(states), "limit": limit}
        return (await self._get("/tasks", TaskList, parameters)).tasks

    async def task(self, task_id: UUID) -> TaskView:
        """One task."""
        return await self._get(f"/tasks/{task_id}", TaskView)

    async def cancel_task(self, task_id: UUID, reason: str = "") -> None:
        """Have a task stopped; it is over when its state says so."""
        body = msgspec.json.encode({"reason": reason})
        await self._send("POST", f"/tasks/{task_id}/cancel", body)

    async def experiments(
        self, task_id: UUID | None = None, *, limit: int = 500, monitoring: bool = True
    ) -> tuple[ExperimentView, ...]:
        """Experiments of a task, or of the newest tasks; without `monitoring` answered faster."""
        parameters = {"monitoring": str(monitoring).lower()}
        if task_id is None:
            listed = await self._get("/experiments", ExperimentList, {"limit": limit, **parameters})
        else:
            listed = await self._get(f"/tasks/{task_id}/experiments", ExperimentList, parameters)
        return listed.experiments

    async def experiment(self, experiment_id: UUID) -> ExperimentView:
        """One experiment with its measurements."""
        return await self._get(f"/experiments/{experiment_id}", ExperimentView)

    async def experiment_document(self, experiment_id: UUID) -> dict[str, Any]:
        """One experiment as plain data, with everything that the gateway joins to it."""
        return await self._get(f"/experiments/{experiment_id}", dict[str, Any])

    async def gpus(self, *, use_cache: bool = True) -> GpuList:
        """Every GPU with its last reading; `use_cache=False` has the nodes read anew."""
        return await self._get("/gpus", GpuList, {} if use_cache else {"use_cache": "false"})

    async def nodes(self) -> NodeList:
        """Every node."""
        return await self._get("/nodes", NodeList)

    async def allocation_map(self, node_id: str) -> AllocationMap:
        """What is held on a node's devices."""
        return await self._get(f"/nodes/{node_id}/gpu-alloc-map", AllocationMap)

    async def estimate(self, task_config: Mapping[str, Any]) -> EstimateView:
        """GPUs and memory that a task configuration needs."""
        body = msgspec.json.encode(task_config)
        return self._decoded(await self._send("POST", "/estimate", body), EstimateView)

    async def availability(self, request: GpuRequest) -> AvailabilityView:
        """Whether a request would be granted now; reserves nothing."""
        body = msgspec.json.encode(request)
        return self._decoded(await self._send("POST", "/availability", body), AvailabilityView)

    async def request_reservation(
        self,
        request: GpuRequest,
        *,
        holder: str,
        namespace: str | None = None,
        reservation_id: UUID | None = None,
    ) -> UUID:
        """Ask for GPUs; return the reservation's id. `await_reservation` awaits the grant."""
        reservation_id = reservation_id or new_id()
        document: dict[str, Any] = {
            "reservation_id": reservation_id,
            "holder": holder,
            "request": request,
        }
        if namespace is not None:
            document["namespace"] = namespace
        body = await self._send("POST", "/reservations", msgspec.json.encode(document))
        return msgspec.json.decode(body, type=_Stored).reservation_id or reservation_id

    async def reservations(
        self, *, states: Iterable[ReservationState] = (), limit: int = 100
    ) -> tuple[ReservationView, ...]:
        """Reservations, newest first."""
        parameters = {"state": _joined(states), "limit": limit}
        return (await self._get("/reservations", ReservationList, parameters)).reservations

    async def reservation(self, reservation_id: UUID) -> ReservationView:
        """One reservation."""
        return await self._get(f"/reservations/{reservation_id}", ReservationView)

    async def await_reservation(
        self, reservation_id: UUID, *, timeout_seconds: float
    ) -> ReservationView:
        """The reservation as soon as it is not queued any more, or as it is at the time-out.

        The gateway holds each question until there is something to tell; nothing is polled.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            left = max(0.0, min(deadline - time.monotonic(), LONGEST_POLL_SECONDS))
            view = await self._get(
                f"/reservations/{reservation_id}",
                ReservationView,
                {"wait_seconds": f"{left:.3f}"},
                timeout_seconds=left + self._timeout_seconds,
            )
            if view.state is not ReservationState.QUEUED or time.monotonic() >= deadline:
                return view

    async def renew_reservation(
        self, reservation_id: UUID, epoch: int, *, activate: bool = False
    ) -> Accepted:
        """Keep a lease; `activate` before anything starts on the devices."""
        body = msgspec.json.encode({"epoch": epoch, "activate": activate})
        answer = await self._send("POST", f"/reservations/{reservation_id}/renew", body)
        return self._decoded(answer, Accepted)

    async def release_reservation(
        self, reservation_id: UUID, epoch: int, *, stopped: bool = True
    ) -> None:
        """Give the devices back; `stopped` says that nothing runs on them any more."""
        parameters = {"epoch": epoch, "stopped": "true" if stopped else "false"}
        await self._send("DELETE", f"/reservations/{reservation_id}", None, parameters)

    async def cancel_reservation(self, reservation_id: UUID) -> None:
        """Withdraw a reservation in whatever state it is."""
        await self._send("DELETE", f"/reservations/{reservation_id}")

    async def explain_reservation(self, reservation_id: UUID) -> Explanation:
        """Every reason why a reservation waits."""
        return await self._get(f"/reservations/{reservation_id}/explain", Explanation)

    @asynccontextmanager
    async def events(self, after: int | None = None) -> AsyncIterator[AsyncIterator[StoredEvent]]:
        """Events as they happen, from the cursor on if one is given. Ends when the gateway does."""
        path = "/ws/events" if after is None else f"/ws/events?after={after}"
        async with self._socket(path) as socket:
            yield _decoded_frames(socket, StoredEvent)

    @asynccontextmanager
    async def metrics(self) -> AsyncIterator[AsyncIterator[GpuMetrics | AttemptProgressed]]:
        """Readings and benchmark progress as they happen, only the newest if we are slow."""
        async with self._socket("/ws/metrics") as socket:
            yield _decoded_frames(socket, GpuMetrics | AttemptProgressed)

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("StewardClient is used outside `async with`")
        return self._session

    @asynccontextmanager
    async def _socket(self, path: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        try:
            socket = await self._open.ws_connect(
                f"{self.address.url}{path}", heartbeat=20.0, max_msg_size=1024 * 1024
            )
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(_plain_problem(error.status, f"{path}: {error.message}")) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from error
        async with socket:
            yield socket

    async def _get(
        self,
        path: str,
        reply: type[T],
        parameters: Parameters | None = None,
        *,
        timeout_seconds: float | None = None,
    ) -> T:
        body = await self._send("GET", path, None, parameters, timeout_seconds=timeout_seconds)
        return self._decoded(body, reply)

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        parameters: Parameters | None = None,
        *,
        command_id: UUID | None = None,
        timeout_seconds: float | None = None,
    ) -> bytes:
        headers = {"Accept": "application/json"}
        if method != "GET":
            headers["Idempotency-Key"] = str(command_id or new_id())
        if body is not None:
            headers["Content-Type"] = "application/json"
        given = {key: str(value) for key, value in (parameters or {}).items() if value is not None}
        give_up_at = time.monotonic() + self._patience_seconds
        while True:
            try:
                return await self._once(method, path, body, given, headers, timeout_seconds)
            except (PlatformUnreachable, ApiError) as error:
                is_final = isinstance(error, ApiError) and error.problem.status not in _RETRIED
                if is_final or time.monotonic() + RETRY_SECONDS > give_up_at:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    async def _once(
        self,
        method: str,
        path: str,
        body: bytes | None,
        parameters: Mapping[str, str],
        headers: Mapping[str, str],
        timeout_seconds: float | None,
    ) -> bytes:
        limit = aiohttp.ClientTimeout(total=timeout_seconds or self._timeout_seconds)
        url = f"{self.address.url}{API}{path}"
        try:
            async with self._open.request(
                method, url, data=body, params=parameters, headers=headers, timeout=limit
            ) as response:
                content = await response.read()
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from error
        if status >= HTTPStatus.BAD_REQUEST:
            raise ApiError(_problem(status, content))
        return content

    def _decoded(self, content: bytes, reply: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=reply)
        except msgspec.DecodeError as error:
            raise self._unreadable(getattr(reply, "__name__", "JSON"), str(error)) from error

    def _unreadable(self, what: str, why: str) -> ApiError:
        detail = f"{self.address.url} does not answer as a GPU Steward gateway ({what}: {why})"
        return ApiError(_plain_problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail))

    def _unreachable(self, error: Exception) -> PlatformUnreachable:
        if isinstance(error, TimeoutError):
            return PlatformUnreachable(f"{self.address.url} did not answer in time")
        return PlatformUnreachable(f"nothing answers at {self.address.url}")


async def _decoded_frames(
    socket: aiohttp.ClientWebSocketResponse, frame: Any
) -> AsyncIterator[Any]:
    decoder = msgspec.json.Decoder(frame)
    async for message in socket:
        if message.type not in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
            continue
        try:
            yield decoder.decode(message.data)
        except msgspec.ValidationError:
            # A newer gateway may send more kinds of frames than we know.
            continue


def _problem(status: int, content: bytes) -> Problem:
    try:
        return msgspec.json.decode(content, type=Problem)
    except msgspec.DecodeError:
        return _plain_problem(status, content.decode(errors="replace")[:500])


def _plain_problem(status: int, detail: str) -> Problem:
    by_status = {
        401: ErrorCode.UNAUTHENTICATED,
        403: ErrorCode.FORBIDDEN,
        404: ErrorCode.NOT_FOUND,
        413: ErrorCode.TOO_LARGE,
        503: ErrorCode.UNAVAILABLE,
        504: ErrorCode.TIMEOUT,
    }
    internal = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    code = by_status.get(status, ErrorCode.INTERNAL if internal else ErrorCode.BAD_REQUEST)
    return Problem(
        type="about:blank", title=f"HTTP {status}", status=status, detail=detail, code=code.value
    )


def _joined(states: Iterable[TaskState] | Iterable[ReservationState]) -> str | None:
    return ",".join(state.value for state in states) or None
