"""A stand-in for the gateway with two made-up GPUs, for what a client does when things go wrong.

It keeps no lease and decides nothing: tests set its state and read what it was asked.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
from aiohttp import WSMsgType, web

from schemas.cluster.node_selection import (
    ClusterGpu,
    ClusterStatus,
    NodeGpuSummary,
    NodeSelection,
    NodeSummaries,
)
from schemas.errors import HTTP_STATUS, Accepted, ErrorCode
from schemas.executor.logs import AttemptLogged, LogChunk
from schemas.gateway.archives import ImportedList
from schemas.gateway.problem import Problem
from schemas.gateway.tokens import Me, Role
from schemas.gateway.views import GpuAllocMap, GpuList, GpuMetrics, GpuView, StoredEvent
from schemas.gpus.available_gpus import AvailableGpus, ScoredGpu
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.views import ExperimentList, ExperimentView, TaskList, TaskPlan, TaskView
from schemas.scheduler.devices import DeviceState
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import (
    AvailabilityView,
    DeviceAllocation,
    Drift,
    DriftList,
    EstimateView,
    Explanation,
    NodeAllocation,
    ReservationList,
    ReservationView,
)
from schemas.telemetry.readings import Source
from services.executor.logs.engine_log import EngineLog
from shared.ids import new_id
from tests.support.http_server import serving
from tests.support.worlds.gateway_views import (
    NOW,
    make_gpu,
    make_grant,
    make_plan,
    make_reservation,
)


@dataclass(slots=True)
class StubGateway:
    """What it answers, and what it was asked."""

    gpus: list[GpuView] = field(default_factory=lambda: [make_gpu(0), make_gpu(1)])
    plan: TaskPlan = field(default_factory=make_plan)
    tasks: list[TaskView] = field(default_factory=list)
    experiments: list[ExperimentView] = field(default_factory=list)
    reservations: dict[UUID, ReservationView] = field(default_factory=dict)
    drifts: list[Drift] = field(default_factory=list)
    logs: dict[int, EngineLog] = field(default_factory=dict)  # of attempts, by their number
    ended_attempts: set[int] = field(default_factory=set)
    outcome: ReservationState = ReservationState.GRANTED
    availability: AvailabilityView = field(
        default_factory=lambda: AvailabilityView(available=False, message="all GPUs are held")
    )
    available: list[int] = field(default_factory=list)
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    renewal_refusal: ErrorCode | None = None
    refusal: ErrorCode | None = None
    is_passing: bool = False  # a refusal asks to come again
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    sockets: list[web.WebSocketResponse] = field(default_factory=list)

    def calls_of(self, method: str) -> list[tuple[str, str, Any]]:
        return [call for call in self.calls if call[0] == method]

    async def tell(self, event_type: str) -> None:
        """Send an event to everybody who listens."""
        event = StoredEvent(
            cursor=1,
            subject="test",
            type=event_type,
            message_id=new_id(),
            occurred_at=NOW,
            event={},
        )
        for socket in self.sockets:
            await socket.send_str(msgspec.json.encode(event).decode())

    async def send(self, message: AttemptLogged | GpuMetrics) -> None:
        """Send it to everybody who listens."""
        for socket in self.sockets:
            await socket.send_str(msgspec.json.encode(message).decode())

    def app(self) -> web.Application:
        application = web.Application(middlewares=[self._record])
        application.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/ws/events", self._socket),
                web.get("/ws/metrics", self._socket),
                web.get("/ws/logs", self._socket),
                web.get("/api/v1/gpus", self._gpus),
                web.get("/api/v1/tasks", self._tasks),
                web.post("/api/v1/tasks/validate", self._validate),
                web.get("/api/v1/tasks/{id}", self._task),
                web.get("/api/v1/tasks/{id}/experiments", self._experiments),
                web.delete("/api/v1/{sort:tasks|experiments}/{id}", self._deleted),
                web.get("/api/v1/experiments", self._experiments),
                web.get("/api/v1/experiments/{id}", self._experiment),
                web.get("/api/v1/experiments/{id}/logs", self._log),
                web.post("/api/v1/estimate", self._estimate),
                web.post("/api/v1/availability", self._availability),
                web.get("/api/v1/nodes/{id}/available-gpus", self._available),
                web.get("/api/v1/cluster/gpus", self._cluster_gpus),
                web.get("/api/v1/cluster/nodes", self._cluster_nodes),
                web.get("/api/v1/select-node", self._select_node),
                web.get("/api/v1/reservations", self._reservations),
                web.post("/api/v1/reservations", self._reserve),
                web.get("/api/v1/reservations/{id}", self._reservation),
                web.get("/api/v1/reservations/{id}/explain", self._explain),
                web.post("/api/v1/reservations/{id}/renew", self._renew),
                web.delete("/api/v1/reservations/{id}", self._release),
                web.post("/api/v1/nodes/{id}/{change:cordon|uncordon|drain|labels}", self._operate),
                web.delete("/api/v1/nodes/{id}", self._operate),
                web.get("/api/v1/nodes/{id}/gpu-alloc-map", self._allocation_map),
                web.get("/api/v1/drifts", self._drifts),
                web.get("/api/v1/imports", self._imports),
                web.get("/api/v1/me", self._me),
            ]
        )
        return application

    @web.middleware
    async def _record(self, request: web.Request, handler: Any) -> web.StreamResponse:
        body = await request.read()
        self.calls.append((request.method, request.path_qs, msgspec.json.decode(body or b"null")))
        self.keys.append(request.headers.get("Idempotency-Key"))
        self.tokens.append(request.headers.get("Authorization"))
        if self.refusal is not None:
            refused = _refused(self.refusal, "refused by the test", path="$.model")
            if self.is_passing:
                refused.headers["Retry-After"] = "1"
            return refused
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _validate(self, _: web.Request) -> web.Response:
        return _json(self.plan)

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets.append(socket)
        async for message in socket:
            if message.type is WSMsgType.ERROR:
                break
        return socket

    async def _gpus(self, _: web.Request) -> web.Response:
        return _json(GpuList(gpus=tuple(self.gpus)))

    async def _allocation_map(self, request: web.Request) -> web.Response:
        devices = tuple(
            DeviceAllocation(
                node_id=gpu.node_id,
                uuid=gpu.uuid,
                index=gpu.index,
                name=gpu.name,
                state=gpu.state or DeviceState.FREE,
                allocated=0.0,
                health=gpu.health,
                simulated=gpu.simulated,
                reservation_id=gpu.reservation_id,
                holder=gpu.holder,
            )
            for gpu in self.gpus
        )
        node = NodeAllocation(
            node_id=request.match_info["id"],
            source=Source.SIMULATED,
            fresh=True,
            devices=devices,
            labels={"zone": "a"},
        )
        shares = {gpu.uuid: "0.00" for gpu in self.gpus}
        return _json(GpuAllocMap(nodes=(node,), gpu_alloc_map=shares))

    async def _operate(self, _: web.Request) -> web.Response:
        return _json(Accepted(command_id=new_id()))

    async def _drifts(self, _: web.Request) -> web.Response:
        return _json(DriftList(drifts=tuple(self.drifts)))

    async def _imports(self, _: web.Request) -> web.Response:
        return _json(ImportedList(imported=()))

    async def _me(self, _: web.Request) -> web.Response:
        return _json(Me(role=Role.ADMIN, namespaces=()))

    async def _tasks(self, _: web.Request) -> web.Response:
        return _json(TaskList(tasks=tuple(self.tasks)))

    async def _task(self, request: web.Request) -> web.Response:
        return _found([t for t in self.tasks if str(t.task_id) == request.match_info["id"]])

    async def _experiments(self, _: web.Request) -> web.Response:
        return _json(ExperimentList(experiments=tuple(self.experiments)))

    async def _experiment(self, request: web.Request) -> web.Response:
        wanted = request.match_info["id"]
        return _found([e for e in self.experiments if str(e.experiment_id) == wanted])

    async def _log(self, request: web.Request) -> web.Response:
        number = int(request.query.get("attempt", max(self.logs, default=0)))
        if number not in self.logs:
            return _refused(ErrorCode.NOT_FOUND, f"nothing is kept of attempt {number}")
        is_ended, lines = number in self.ended_attempts, int(request.query["lines"])
        if "offset" in request.query:
            offset = int(request.query["offset"])
            excerpt = self.logs[number].read(offset, lines, is_ended=is_ended)
        else:
            excerpt = self.logs[number].last(lines, is_ended=is_ended)
        chunk = LogChunk(
            attempt_id=UUID(int=number),
            offset=excerpt.offset,
            next_offset=excerpt.next_offset,
            lines=excerpt.lines,
            skipped_bytes=excerpt.skipped_bytes,
            is_complete=is_ended and excerpt.is_last,
        )
        return _json(chunk)

    async def _estimate(self, _: web.Request) -> web.Response:
        return _json(EstimateView(gpus=4, min_memory_mb=20_000, world_size=4))

    async def _availability(self, request: web.Request) -> web.Response:
        if not self.availability.available and not self.availability.impossible:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(float(request.query.get("wait_seconds", 0))):
                    await self.freed.wait()
        return _json(self.availability)

    async def _deleted(self, _: web.Request) -> web.Response:
        return _json(Accepted(command_id=new_id(), revision=1))

    async def _available(self, request: web.Request) -> web.Response:
        gpus = tuple(ScoredGpu(index=i, uuid=f"GPU-{i}", score=1.0) for i in self.available)
        return _json(AvailableGpus(node_id=request.match_info["id"], gpus=gpus))

    async def _cluster_gpus(self, _: web.Request) -> web.Response:
        gpu = ClusterGpu(
            node_name="alpha", gpu_index=0, gpu_uuid="GPU-0", gpu_model="H100", allocatable=True
        )
        return _json(ClusterStatus(gpus=(gpu,)))

    async def _cluster_nodes(self, _: web.Request) -> web.Response:
        summary = NodeGpuSummary(
            node_name="alpha", total_gpus=1, allocatable_gpus=1, idle_gpu_count=1
        )
        return _json(NodeSummaries(nodes={"alpha": summary}))

    async def _select_node(self, request: web.Request) -> web.Response:
        fits = int(request.query["required_gpus"]) == 1
        return _json(NodeSelection(node_id="alpha" if fits else None, message="by idle GPUs"))

    async def _reservations(self, _: web.Request) -> web.Response:
        return _json(ReservationList(reservations=tuple(self.reservations.values())))

    async def _reserve(self, request: web.Request) -> web.Response:
        body = await request.json()
        wanted = msgspec.convert(body["request"], GpuRequest)
        held = self.outcome is ReservationState.GRANTED
        view = make_reservation(
            reservation_id=UUID(body["reservation_id"]),
            holder=body["holder"],
            request=wanted,
            state=self.outcome,
            epoch=7 if held else None,
            devices=tuple(make_grant(n) for n in range(wanted.gpus)) if held else (),
            reason="" if held else "the fleet has 2 GPUs",
        )
        self.reservations[view.reservation_id] = view
        return _json(view)

    async def _reservation(self, request: web.Request) -> web.Response:
        return _found([r for r in self.reservations.values() if _is_named(r, request)])

    async def _explain(self, request: web.Request) -> web.Response:
        explanation = Explanation(
            reservation_id=UUID(request.match_info["id"]),
            state=ReservationState.QUEUED,
            queue_position=2,
            queue_length=3,
            reasons=(),
            summary="2 GPUs are wanted, 1 is free",
        )
        return _json(explanation)

    async def _renew(self, request: web.Request) -> web.Response:
        if self.renewal_refusal is not None:
            return _refused(self.renewal_refusal, "the lease has ended")
        ids = [r for r in self.reservations.values() if _is_named(r, request)]
        ttl_seconds = ids[0].request.lease_ttl_seconds
        return _json(Accepted(command_id=new_id(), lease_ttl_seconds=ttl_seconds, epoch=7))

    async def _release(self, request: web.Request) -> web.Response:
        return _json(next(r for r in self.reservations.values() if _is_named(r, request)))


@asynccontextmanager
async def stub_gateway() -> AsyncIterator[tuple[StubGateway, str]]:
    """The stub and its address."""
    stub = StubGateway()
    async with serving(stub.app()) as url:
        yield stub, url


def _is_named(view: ReservationView, request: web.Request) -> bool:
    return str(view.reservation_id) == request.match_info["id"]


def _json(view: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(view), content_type="application/json")


def _found(views: list[Any]) -> web.Response:
    return _json(views[0]) if views else _refused(ErrorCode.NOT_FOUND, "there is no such thing")


def _refused(code: ErrorCode, detail: str, path: str | None = None) -> web.Response:
    problem = Problem(
        type="about:blank",
        title=code.value,
        status=HTTP_STATUS[code],
        detail=detail,
        code=code.value,
        path=path,
    )
    return web.Response(
        status=HTTP_STATUS[code],
        body=msgspec.json.encode(problem),
        content_type="application/problem+json",
    )
