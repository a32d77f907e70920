"""Samples on to a collector: what it gets, and that nothing waits for one that is away."""

import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import asyncpg
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from schemas.executor.attempts import AttemptPhase, AttemptPhaseChanged, AttemptStarted
from schemas.gpus.device_grant import DeviceGrant
from schemas.scheduler.reservations import ReservationGranted
from shared.clock import utcnow
from shared.ids import new_id
from shared.testing import eventually
from tests.support.ports import free_port
from tests.support.worlds.results import NODE, World, every_second

DEVICE = DeviceGrant(node_id=NODE, uuid="GPU-0", index=0, name="NVIDIA A100")
SELECT_MEASURING = """
SELECT EXISTS (
    SELECT FROM results.running_attempt JOIN results.device_holding USING (reservation_id)
    WHERE phase = 'measuring' AND granted_at IS NOT NULL)
"""
Point = tuple[str, dict[str, Any], float, int]  # metric, attributes, value, nanoseconds


@dataclass
class Collector:
    """One that speaks OTLP over HTTP, and keeps what it was sent."""

    url: str = ""
    requests: list[ExportMetricsServiceRequest] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip" and body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        self.requests.append(ExportMetricsServiceRequest.FromString(body))
        return web.Response(content_type="application/x-protobuf")

    def points(self) -> list[Point]:
        return [
            (metric.name, _attributes(point.attributes), _value(point), point.time_unix_nano)
            for request in self.requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in getattr(metric, metric.WhichOneof("data") or "gauge").data_points
        ]


def _value(of: Any) -> Any:
    return getattr(of, of.WhichOneof("value"))


def _attributes(pairs: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in pairs}


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/metrics", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port := free_port())
    await site.start()
    collector.url = f"http://127.0.0.1:{port}"
    yield collector
    await runner.cleanup()


async def test_collector_gets_readings_with_holders(
    world: World,
) -> None:
    start = utcnow() - timedelta(seconds=30)
    reservation_id, experiment_id, attempt_id = new_id(), new_id(), new_id()
    about: dict[str, Any] = {
        "reservation_id": reservation_id,
        "epoch": 1,
        "occurred_at": start - timedelta(seconds=60),
    }
    attempt = {
        **about,
        "experiment_id": experiment_id,
        "attempt_id": attempt_id,
        "attempt_number": 1,
        "task_id": new_id(),
        "executor_id": NODE,
    }
    granted = ReservationGranted(
        **about,
        message_id=new_id(),
        revision=2,
        namespace="team-a",
        holder=f"experiment/{experiment_id}/tune#1",
        node_id=NODE,
        devices=(DEVICE,),
        lease_ttl_seconds=30.0,
        waited_seconds=0.0,
    )
    started = AttemptStarted(**attempt, message_id=new_id(), revision=1, devices=(DEVICE,))
    phases = [
        AttemptPhaseChanged(**attempt, message_id=new_id(), revision=revision, phase=phase)
        for revision, phase in ((2, AttemptPhase.LOADING), (3, AttemptPhase.MEASURING))
    ]
    samples = every_second(start, 5)

    async def is_measuring() -> bool:
        connection = await asyncpg.connect(world.dsn)
        try:
            return bool(await connection.fetchval(SELECT_MEASURING))
        finally:
            await connection.close()

    async with collecting() as collector, world.results(otlp_endpoint=collector.url):
        await world.publish(granted, started, *phases)
        await eventually(is_measuring, what="the phase")
        await world.publish(*samples)
        await eventually(
            lambda: len([p for p in collector.points() if p[0] == "hw.power"]) == 10,
            what="every reading",
        )
        points = collector.points()

    power = [point for point in points if point[0] == "hw.power"]
    assert {point[3] for point in power} == {
        round(sample.observed_at.timestamp() * 1e6) * 1000 for sample in samples
    }
    by_id = {point[1]["hw.id"]: point for point in power}
    assert by_id["GPU-0"][1] == {
        "hw.id": "GPU-0",
        "hw.name": "NVIDIA A100",
        "hw.type": "gpu",
        "gpusteward.simulated": True,
        "gpusteward.reservation.id": str(reservation_id),
        "gpusteward.experiment.id": str(experiment_id),
        "gpusteward.phase": "measuring",
    }
    assert "gpusteward.reservation.id" not in by_id["GPU-1"][1]
    values = {point[0]: point[2] for point in points}
    assert values["hw.gpu.utilization"] == 0.8
    assert values["hw.gpu.memory.usage"] == 20_000 * 2**20
    assert "hw.energy" not in values  # these GPUs do not tell it


async def test_samples_are_stored_without_the_collector(world: World) -> None:
    samples = every_second(utcnow() - timedelta(seconds=60), 50)

    async with world.results(otlp_endpoint=f"http://127.0.0.1:{free_port()}"):
        await world.publish(*samples)
        await world.stored(100)


async def test_silent_collector_delays_no_storing(world: World) -> None:
    samples = every_second(utcnow() - timedelta(seconds=60), 50)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with world.results(otlp_endpoint=f"http://127.0.0.1:{port}"):
            await world.publish(*samples[:25])
            await world.stored(50)
            await world.publish(*samples[25:])
            await world.stored(100)
