"""What an agent does on command, over a real nats-server, on simulated GPUs."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from schemas.base import Command
from schemas.errors import Accepted, ErrorCode, Refused, Reply
from schemas.gpus.device_grant import DeviceGrant
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reservations import ReservationExpired, ReservationState
from schemas.scheduler.views import GetReservation, ReservationView
from schemas.telemetry.monitoring import (
    AgentView,
    GetAgent,
    GetGpu,
    GpuDetail,
    MonitoringView,
    StartMonitoring,
    StopMonitoring,
)
from schemas.telemetry.readings import HealthChanged, HealthKind, SetBurst, SetPowerLimit
from services.telemetry.app import TelemetryService, create_service
from services.telemetry.settings import TelemetrySettings
from services.telemetry.sources.selection import DEFAULT_FLEET
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.ids import new_id
from shared.messaging.bus import Bus, query_route
from shared.service import Service
from shared.testing import eventually
from tests.support.paths import ROOT
from tests.support.processes.agent import agent_process
from tests.support.worlds.telemetry_client import NODE, Watcher, watching

DEVICE = "GPU-51a7ed00-0000-4000-8000-000000000000"
OTHER_DEVICE = "GPU-51a7ed00-0000-4000-8000-000000000001"
DEFAULT_W = 700.0


def make_service(nats_url: str, tmp_path: Path, **overrides: Any) -> TelemetryService:
    values: dict[str, Any] = {
        "source": "simulated",
        "nats_url": nats_url,
        "node_id": NODE,
        "data_dir": str(tmp_path),
        "interval_seconds": 0.1,
        "metrics": False,
        **overrides,
    }
    return create_service(TelemetrySettings(**values))


def make_limit(watts: float | None, **overrides: Any) -> SetPowerLimit:
    values: dict[str, Any] = {"device_uuid": DEVICE, "power_limit_w": watts, **overrides}
    return SetPowerLimit(command_id=new_id(), node_id=NODE, **values)


@pytest.fixture
async def watcher(nats_url: str) -> AsyncIterator[Watcher]:
    async with watching(nats_url) as found:
        yield found


def limit_w(watcher: Watcher) -> float | None:
    return watcher.samples[-1].gpus[0].power_limit_w


def told_of(watcher: Watcher, kind: HealthKind) -> list[HealthChanged]:
    return [event for event in watcher.health if event.change is kind]


async def refused(watcher: Watcher, command: Command) -> Refused:
    reply = await watcher.bus.request(command)
    assert isinstance(reply, Refused), reply
    return reply


@asynccontextmanager
async def a_scheduler(nats_url: str, held: dict[UUID, str]) -> AsyncIterator[None]:
    """Stands for the scheduler, of which one answer is wanted: who holds what."""

    async def answer(query: GetReservation) -> ReservationView:
        uuid = held.get(query.reservation_id)
        grant = DeviceGrant(node_id=NODE, uuid=uuid or "", index=0, name="Simulated H200")
        return ReservationView(
            reservation_id=query.reservation_id,
            namespace="default",
            holder="experiment/e1",
            state=ReservationState.ACTIVE if uuid else ReservationState.RELEASED,
            request=GpuRequest(),
            revision=3,
            requested_at=utcnow(),
            node_id=NODE,
            devices=(grant,) if uuid else (),
        )

    bus = Bus("scheduler", nats_url)
    async with Service(
        "scheduler", bus=bus, routes=[query_route(answer, GetReservation)]
    ).running():
        yield


async def test_an_agent_answers_for_its_gpus(
    nats_url: str, watcher: Watcher, tmp_path: Path
) -> None:
    async with make_service(nats_url, tmp_path).running():
        await watcher.samples_beyond(1)
        ask = watcher.bus.query
        agent = await ask(GetAgent(node_id=NODE), AgentView)
        gpu = await ask(GetGpu(node_id=NODE, index=1), GpuDetail)
        with pytest.raises(RefusedError) as unknown:
            await ask(GetGpu(node_id=NODE, index=7), GpuDetail)

    assert (agent.available, agent.gpu_count, agent.interval_seconds) == (True, 2, 0.1)
    assert gpu.facts.uuid == OTHER_DEVICE
    assert gpu.reading is not None
    assert gpu.reading.index == 1
    assert unknown.value.code is ErrorCode.NOT_FOUND


async def test_monitoring_samples_at_its_rate(
    nats_url: str, watcher: Watcher, tmp_path: Path
) -> None:
    query = StartMonitoring(node_id=NODE, monitoring_id=new_id(), interval_seconds=0.1)
    stop = StopMonitoring(node_id=NODE, monitoring_id=query.monitoring_id)
    async with make_service(nats_url, tmp_path, interval_seconds=30.0).running():
        await eventually(lambda: len(watcher.samples) == 1, what="the first sample")
        started = await watcher.bus.query(query, MonitoringView)
        # Two samples of one tick, the first of them late, count as one.
        await watcher.samples_beyond(6)
        stopped = await watcher.bus.query(stop, MonitoringView)
        again = await watcher.bus.query(stop, MonitoringView)
        # The tick that was due when it was stopped is the last fast one.
        await watcher.samples_beyond(1)
        after = watcher.samples[-1]

    assert started.running
    assert stopped == again
    assert not stopped.running
    assert stopped.sample_count >= 4
    assert stopped.gpu_stats["0"].utilization.samples == stopped.sample_count
    assert stopped.gpu_stats["0"].name == watcher.samples[0].gpus[0].name
    assert [s.interval_seconds for s in watcher.samples[1:5]] == [0.1] * 4
    assert after.interval_seconds == 30.0


async def test_a_burst_hurries_at_once_and_ends_by_itself(
    nats_url: str, watcher: Watcher, tmp_path: Path
) -> None:
    burst = SetBurst(command_id=new_id(), node_id=NODE, interval_seconds=0.1, duration_seconds=0.5)
    async with make_service(nats_url, tmp_path, interval_seconds=1.0).running():
        await watcher.samples_beyond(1)
        replies: list[Reply] = [await watcher.bus.request(burst) for _ in range(2)]
        await eventually(
            lambda: watcher.samples[-1].interval_seconds == 1.0 and len(watcher.samples) > 3,
            what="the last fast sample",
        )
        fast = len(watcher.samples)
        await watcher.samples_beyond(1)

    assert all(isinstance(reply, Accepted) for reply in replies)
    assert 4 <= fast <= 8
    numbers = [sample.sequence for sample in watcher.samples]
    assert numbers == list(range(1, len(numbers) + 1))
    slow = watcher.samples[fast].observed_at - watcher.samples[fast - 1].observed_at
    assert slow.total_seconds() > 0.8
    assert len(watcher.inventories) == 1


async def test_power_limit_ends_with_its_reservation(
    nats_url: str, watcher: Watcher, tmp_path: Path
) -> None:
    reservation_id = new_id()
    command = make_limit(450.0, reservation_id=reservation_id)
    async with (
        a_scheduler(nats_url, {reservation_id: DEVICE}),
        make_service(nats_url, tmp_path).running(),
    ):
        await watcher.samples_beyond(1)
        reply = await watcher.bus.request(command)
        again = await watcher.bus.request(command)
        await eventually(lambda: limit_w(watcher) == 450.0, what="the limit in a sample")
        await watcher.bus.publish_event(make_expired(reservation_id))
        await eventually(lambda: limit_w(watcher) == DEFAULT_W, what="the limit taken back")

    assert reply == again == Accepted(command_id=command.command_id)
    (changed,) = told_of(watcher, HealthKind.POWER_LIMIT_CHANGED)
    (restored,) = told_of(watcher, HealthKind.POWER_LIMIT_RESTORED)
    assert (changed.device_uuid, changed.power_limit_w) == (DEVICE, 450.0)
    assert changed.reservation_id == restored.reservation_id == reservation_id
    assert restored.power_limit_w == DEFAULT_W


async def test_a_power_limit_is_refused_with_the_reason(
    nats_url: str, watcher: Watcher, tmp_path: Path
) -> None:
    holder, stranger, ended = new_id(), new_id(), new_id()
    async with (
        a_scheduler(nats_url, {holder: DEVICE, stranger: OTHER_DEVICE}),
        make_service(nats_url, tmp_path).running(),
    ):
        await watcher.samples_beyond(1)
        beyond = await refused(watcher, make_limit(5000.0))
        unknown = await refused(watcher, make_limit(400.0, device_uuid="GPU-none"))
        foreign = await refused(watcher, make_limit(400.0, reservation_id=stranger))
        over = await refused(watcher, make_limit(400.0, reservation_id=ended))
        await watcher.bus.request(make_limit(300.0))
        raised = await refused(watcher, make_limit(600.0, reservation_id=holder))

    assert (beyond.code, beyond.details["maximum_w"]) == (ErrorCode.BAD_REQUEST, DEFAULT_W)
    assert unknown.code is ErrorCode.NOT_FOUND
    assert foreign.code is over.code is ErrorCode.CONFLICT
    assert OTHER_DEVICE in foreign.message
    assert "released" in over.message
    assert (raised.code, "300 W" in raised.message) == (ErrorCode.FORBIDDEN, True)
    assert len(told_of(watcher, HealthKind.POWER_LIMIT_CHANGED)) == 1


async def test_a_stopped_agent_leaves_no_power_limit(
    nats_url: str, watcher: Watcher, tmp_path: Path
) -> None:
    async with make_service(nats_url, tmp_path).running():
        await watcher.samples_beyond(1)
        await watcher.bus.request(make_limit(400.0))
    await eventually(
        lambda: watcher.changes[-1] is HealthKind.AGENT_STOPPED, what="the agent's end"
    )

    assert watcher.changes[-2] is HealthKind.POWER_LIMIT_RESTORED


async def test_killed_agents_power_limit_is_restored(
    nats_url: str, watcher: Watcher, tmp_path: Path
) -> None:
    async with agent_process(nats_url, tmp_path, GPUSTEWARD_TELEMETRY_METRICS="false"):
        await eventually(lambda: bool(watcher.samples), within_seconds=30.0, what="its start")
        await watcher.bus.request(make_limit(400.0))
    before = len(watcher.health)

    async with make_service(nats_url, tmp_path).running():
        await eventually(
            lambda: HealthKind.POWER_LIMIT_RESTORED in watcher.changes[before:],
            what="the limit taken back",
        )

    (restored,) = told_of(watcher, HealthKind.POWER_LIMIT_RESTORED)
    assert (restored.device_uuid, restored.power_limit_w) == (DEVICE, DEFAULT_W)


def make_expired(reservation_id: UUID) -> ReservationExpired:
    return ReservationExpired(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=4,
        reservation_id=reservation_id,
        namespace="default",
        holder="test",
        epoch=1,
        node_id=NODE,
    )


def test_agent_ends_with_the_error_of_its_fleet(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(DEFAULT_FLEET.read_text().replace("is_mig_device = false", "mig = true", 1))

    ended = subprocess.run(
        [sys.executable, "-m", "services.telemetry"],
        env={"PYTHONPATH": str(ROOT), "GPUSTEWARD_TELEMETRY_FLEET": str(fleet)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert ended.returncode == os.EX_CONFIG
    [line] = ended.stderr.splitlines()
    assert line.startswith(f"GPUSTEWARD_TELEMETRY_FLEET: {fleet}: Object contains unknown field")
