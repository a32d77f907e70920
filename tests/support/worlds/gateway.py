"""A running gateway, and stand-ins for the owners behind it."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import aiohttp
import msgspec
import nats
from litestar import Litestar
from nats.aio.client import Client

from schemas.base import Command, Message, pattern_for, subject_for
from schemas.catalog import COMMANDS, QUERIES
from schemas.cluster.node_selection import ClusterGpu, NodeGpuSummary
from schemas.errors import Accepted
from schemas.executor.attempts import EngineSpec, Runtime
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import (
    ExperimentState,
    ExperimentWaiting,
    TaskStarted,
    TaskState,
)
from schemas.orchestrator.views import ExperimentView, TaskView
from schemas.results.measurements import GpuMonitoring, SummaryView
from schemas.scheduler.devices import DeviceState
from schemas.scheduler.drifts import DriftAction, DriftKind
from schemas.scheduler.reservations import ReservationQueued, ReservationReleased, ReservationState
from schemas.scheduler.views import (
    AllocationMap,
    DeviceAllocation,
    Drift,
    NodeAllocation,
    ReservationView,
)
from schemas.task.benchmark import BenchmarkMetrics
from schemas.task.objectives import Objective
from schemas.task.task_file import DeploymentMode
from schemas.telemetry.readings import (
    GpuReading,
    GpuSampled,
    HealthState,
    Source,
)
from services.gateway import app as gateway_app
from services.gateway.app import create_app
from services.gateway.context import Gateway
from services.gateway.settings import GatewaySettings
from services.telemetry import app as telemetry
from services.telemetry.settings import TelemetrySettings
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.codec import encode
from shared.testing import eventually

NODE = "node-a"
BOOT = UUID(int=3)
TASK = {"task_name": "tune", "base_runtime": "llama.cpp", "model": {"id_or_path": "smollm2"}}
Answer = Callable[[Any], Any] | msgspec.Struct


def make_sample(sequence: int = 1, **reading: Any) -> GpuSampled:
    values: dict[str, Any] = {
        "utilization_percent": 25.0,
        "memory_total_mb": 80_000,
        "memory_used_mb": 20_000,
        "memory_free_mb": 60_000,
        "name": "NVIDIA A100",
        **reading,
    }
    return GpuSampled(
        node_id=NODE,
        boot_id=BOOT,
        sequence=sequence,
        observed_at=utcnow(),
        interval_seconds=1.0,
        source=Source.SIMULATED,
        gpus=tuple(GpuReading(uuid=f"GPU-{index}", index=index, **values) for index in range(2)),
    )


def make_task_view(task_id: UUID, **overrides: Any) -> TaskView:
    fields: dict[str, Any] = {
        "task_id": task_id,
        "namespace": "default",
        "task_name": "tune",
        "description": "",
        "state": TaskState.RUNNING,
        "mode": DeploymentMode.PROCESS,
        "objective": Objective.MINIMIZE_LATENCY,
        "revision": 1,
        "created_at": utcnow(),
    }
    return TaskView(**{**fields, **overrides})


def make_experiment_view(**overrides: Any) -> ExperimentView:
    fields: dict[str, Any] = {
        "experiment_id": new_id(),
        "task_id": new_id(),
        "namespace": "default",
        "ordinal": 1,
        "state": ExperimentState.SUCCEEDED,
        "revision": 4,
        "parameters": {"threads": 2},
        "engine": EngineSpec(runtime=Runtime.PROCESS, engine="llama.cpp", model="m"),
        "request": GpuRequest(),
        "created_at": utcnow(),
        "metrics": BenchmarkMetrics(mean_ttft=0.2),
    }
    return ExperimentView(**{**fields, **overrides})


def make_summary(view: ExperimentView, **overrides: Any) -> SummaryView:
    monitoring = GpuMonitoring(
        monitoring_duration_seconds=5.0,
        sample_count=5,
        gpu_stats={},
        coverage_percent=100.0,
        energy_wh=0.5,
        phase="measuring",
        simulated=True,
    )
    fields: dict[str, Any] = {
        "experiment_id": view.experiment_id,
        "attempt_id": new_id(),
        "task_id": view.task_id,
        "version": 1,
        "metrics": view.metrics,
        "gpu_monitoring": monitoring,
    }
    return SummaryView(**{**fields, **overrides})


def make_reservation_view(reservation_id: UUID, **overrides: Any) -> ReservationView:
    fields: dict[str, Any] = {
        "reservation_id": reservation_id,
        "namespace": "default",
        "holder": "test",
        "state": ReservationState.QUEUED,
        "request": GpuRequest(),
        "revision": 1,
        "requested_at": utcnow(),
    }
    return ReservationView(**{**fields, **overrides})


def make_task_started(**overrides: Any) -> TaskStarted:
    fields: dict[str, Any] = {
        "message_id": new_id(),
        "occurred_at": utcnow(),
        "revision": 1,
        "task_id": new_id(),
        "namespace": "default",
        "task_name": "tune",
    }
    return TaskStarted(**{**fields, **overrides})


def make_waiting(task_id: UUID, experiment_id: UUID, reservation_id: UUID) -> ExperimentWaiting:
    return ExperimentWaiting(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=1,
        task_id=task_id,
        experiment_id=experiment_id,
        namespace="default",
        ordinal=1,
        reservation_id=reservation_id,
        attempt_number=1,
    )


def _reservation_fields(**overrides: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "message_id": new_id(),
        "occurred_at": utcnow(),
        "revision": 1,
        "reservation_id": new_id(),
        "namespace": "default",
    }
    return {**fields, **overrides}


def make_queued(**overrides: Any) -> ReservationQueued:
    fields = {"request": GpuRequest(), "position": 1, "wait_deadline_at": utcnow()}
    return ReservationQueued(**_reservation_fields(**fields, **overrides))


def make_released(**overrides: Any) -> ReservationReleased:
    return ReservationReleased(**_reservation_fields(revision=4, **overrides))


def make_allocation_map() -> AllocationMap:
    def device(index: int, state: DeviceState, allocated: float) -> DeviceAllocation:
        return DeviceAllocation(
            node_id=NODE,
            uuid=f"GPU-{index}",
            index=index,
            name="NVIDIA A100",
            state=state,
            allocated=allocated,
            health=HealthState.OK,
            simulated=True,
            holder="experiment/1" if allocated else None,
        )

    devices = (device(0, DeviceState.HELD, 1.0), device(1, DeviceState.FREE, 0.0))
    return AllocationMap(
        nodes=(NodeAllocation(node_id=NODE, source=Source.SIMULATED, fresh=True, devices=devices),)
    )


def make_drift() -> Drift:
    return Drift(
        drift_id=new_id(),
        drift=DriftKind.SQUATTER,
        node_id=NODE,
        since_at=utcnow(),
        age_seconds=1.0,
        action=DriftAction.NONE,
        detail="process 7",
    )


def make_cluster_gpu(index: int) -> ClusterGpu:
    return ClusterGpu(
        node_name=NODE,
        gpu_index=index,
        gpu_uuid=f"GPU-{index}",
        gpu_model="NVIDIA A100",
        allocatable=True,
    )


def make_node_summary(name: str) -> NodeGpuSummary:
    return NodeGpuSummary(node_name=name, total_gpus=1, allocatable_gpus=1, idle_gpu_count=1)


@dataclass
class Owners:
    """Stand for the other services: they answer what the test tells them and keep what they got."""

    client: Client
    received: list[Message] = field(default_factory=list)

    async def answer(self, message: type[Message], answer: Answer) -> None:
        async def on_request(raw: Any) -> None:
            request = msgspec.msgpack.decode(raw.data, type=message)
            self.received.append(request)
            reply = answer if isinstance(answer, msgspec.Struct) else answer(request)
            await self.client.publish(raw.reply, encode(reply))

        await self.client.subscribe(pattern_for(message), queue="owner", cb=on_request)
        await self.client.flush()
        await self.client.flush()  # nats-py's first PING overtakes what is still buffered

    async def accept(self, command: type[Command]) -> None:
        await self.answer(command, lambda c: Accepted(command_id=c.command_id, revision=1))

    async def overhear(self) -> list[str]:
        """Subjects of every command and query that is sent from now on."""
        subjects: list[str] = []

        async def on_message(raw: Any) -> None:
            subjects.append(raw.subject)

        for message in (*COMMANDS, *QUERIES):
            await self.client.subscribe(pattern_for(message), cb=on_message)
        await self.client.flush()
        return subjects

    async def publish(self, *messages: Message) -> None:
        for message in messages:
            await self.client.publish(subject_for(message), encode(message))
        await self.client.flush()


@dataclass
class Api:
    """A running gateway, seen from outside."""

    session: aiohttp.ClientSession
    url: str
    owners: Owners

    async def call(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> tuple[int, Any]:
        if body is not None and "data" not in options:
            options["data"] = msgspec.json.encode(body)
        async with self.session.request(method, self.url + path, **options) as response:
            content = await response.read()
            kind = response.headers.get("Content-Type", "")
            if response.status >= 400:
                assert kind == "application/problem+json", (kind, content)
            return response.status, json.loads(content) if "json" in kind else content.decode()

    async def get(self, path: str, **options: Any) -> tuple[int, Any]:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        return await self.call("POST", path, body, **options)


_spare_apps: list[tuple[Gateway, Litestar]] = []


@contextmanager
def _app_of_an_earlier_gateway() -> Iterator[None]:
    """To make the routes takes longer than most tests of them. All that differs from one gateway
    to the next is what every route is given.
    """
    lent: list[tuple[Gateway, Litestar]] = []

    def lend(gateway: Gateway) -> Litestar:
        given, app = _spare_apps.pop() if _spare_apps else (gateway, create_app(gateway))
        for each in fields(Gateway):
            object.__setattr__(given, each.name, getattr(gateway, each.name))
        lent.append((given, app))
        return app

    with patch.object(gateway_app, "create_app", lend):
        yield
    _spare_apps.extend(lent)


@asynccontextmanager
async def gateway(nats_url: str, dsn: str, **settings: Any) -> AsyncIterator[Api]:
    wanted = GatewaySettings(nats_url=nats_url, postgres_dsn=dsn, port=0, **settings)
    with _app_of_an_earlier_gateway():
        service = gateway_app.create_service(wanted)
        service.bus.awaits_services = False  # an owner that is not there comes in no test
        client = await nats.connect(nats_url.split(","))
        async with service.running(), aiohttp.ClientSession() as session:
            yield Api(session, f"http://127.0.0.1:{service.http.port}", Owners(client))
        await client.close()


async def logged(api: Api, count: int, path: str = "/api/v1/events") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    async def are_there() -> bool:
        _, body = await api.get(path)
        found[:] = body["events"]
        return len(found) >= count

    await eventually(are_there, what=f"{count} events")
    return found


@asynccontextmanager
async def a_node(nats_url: str, tmp_path: Path) -> AsyncIterator[None]:
    """The agent of a simulated fleet."""
    settings = TelemetrySettings(
        source="simulated",
        nats_url=nats_url,
        node_id=NODE,
        data_dir=str(tmp_path),
        interval_seconds=0.1,
        metrics=False,
    )
    async with telemetry.create_service(settings).running():
        yield
