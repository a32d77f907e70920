"""A telemetry agent over a real nats-server, on simulated GPUs."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

from schemas.gpus.device_grant import DeviceGrant
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reservations import ReservationGranted, ReservationReleased, ReservationState
from schemas.scheduler.views import ListReservations, ReservationList, ReservationView
from schemas.telemetry.readings import HealthKind, HealthState, Source
from services.telemetry.app import create_service
from services.telemetry.settings import TelemetrySettings
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.bus import Bus, query_route
from shared.service import Service
from shared.testing import NatsServer, eventually
from tests.support.processes.agent import agent_process
from tests.support.worlds.telemetry_client import NODE, Watcher, watching

FIRST_DEVICE = "GPU-51a7ed00-0000-4000-8000-000000000000"
INTERVAL_SECONDS = 0.05


def make_settings(nats_url: str, **overrides: object) -> TelemetrySettings:
    values: dict[str, object] = {
        "source": "simulated",
        "nats_url": nats_url,
        "node_id": NODE,
        "interval_seconds": INTERVAL_SECONDS,
        "metrics": False,
        **overrides,
    }
    return TelemetrySettings(**values)  # type: ignore[arg-type]  # overrides of several types


def make_granted(reservation_id: UUID, *, node_id: str = NODE) -> ReservationGranted:
    return ReservationGranted(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=2,
        reservation_id=reservation_id,
        namespace="default",
        holder="test",
        epoch=1,
        node_id=node_id,
        devices=(DeviceGrant(node_id=node_id, uuid=FIRST_DEVICE, index=0, name="Simulated H200"),),
        lease_ttl_seconds=30.0,
        waited_seconds=0.0,
    )


def make_released(granted: ReservationGranted) -> ReservationReleased:
    return ReservationReleased(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=4,
        reservation_id=granted.reservation_id,
        namespace=granted.namespace,
        holder=granted.holder,
        epoch=granted.epoch,
        node_id=granted.node_id,
        devices=granted.devices,
    )


@pytest.fixture
async def watcher(nats_url: str) -> AsyncIterator[Watcher]:
    async with watching(nats_url) as found:
        yield found


async def test_agent_tells_start_devices_and_samples(nats_url: str, watcher: Watcher) -> None:
    async with create_service(make_settings(nats_url)).running():
        await watcher.samples_beyond(5)
        await eventually(lambda: bool(watcher.inventories), what="an inventory")

    assert watcher.changes == [HealthKind.AGENT_STARTED, HealthKind.AGENT_STOPPED]
    inventory = watcher.inventories[0]
    assert inventory.source is Source.SIMULATED
    assert [device.index for device in inventory.devices] == [0, 1]
    assert all(device.simulated for device in inventory.devices)
    assert {device.health for device in inventory.devices} == {HealthState.OK}
    assert inventory.host.hostname
    assert all(sample.simulated and len(sample.gpus) == 2 for sample in watcher.samples)
    assert {sample.boot_id for sample in watcher.samples} == {inventory.boot_id}
    numbers = [sample.sequence for sample in watcher.samples]
    assert numbers == sorted(set(numbers))


async def test_revisions_grow_over_all_events(nats_url: str, watcher: Watcher) -> None:
    settings = make_settings(nats_url, inventory_seconds=INTERVAL_SECONDS)
    async with create_service(settings).running():
        await eventually(lambda: len(watcher.inventories) >= 3, what="repeated inventories")

    revisions = [event.revision for event in watcher.inventories]
    assert all(later > earlier for earlier, later in pairwise(revisions))
    assert watcher.health[0].revision < revisions[0]
    assert revisions[-1] < watcher.health[-1].revision


async def test_restarted_agent_has_a_new_boot_id(nats_url: str, watcher: Watcher) -> None:
    async with create_service(make_settings(nats_url)).running():
        await watcher.samples_beyond(3)
    async with create_service(make_settings(nats_url)).running():
        await watcher.samples_beyond(3)

    first, last = watcher.samples[0], watcher.samples[-1]
    assert first.boot_id != last.boot_id
    restarted = [sample for sample in watcher.samples if sample.boot_id == last.boot_id]
    assert restarted[0].sequence == 1


async def test_snapshot_takes_the_next_number(nats_url: str, watcher: Watcher) -> None:
    settings = make_settings(nats_url, interval_seconds=30.0)
    async with create_service(settings).running():
        await eventually(lambda: len(watcher.samples) == 1, what="the first sample")
        fresh = await watcher.snapshot()
        cached = await watcher.snapshot(use_cache=True)
        await eventually(lambda: len(watcher.samples) == 2, what="the snapshot as a sample")

    assert [sample.sequence for sample in watcher.samples] == [1, 2]
    assert watcher.samples[1] == fresh == cached


async def test_simulated_load_follows_the_grant(nats_url: str, watcher: Watcher) -> None:
    granted = make_granted(new_id())
    async with create_service(make_settings(nats_url)).running():
        await watcher.samples_beyond(1)
        idle_mb = watcher.used_mb()

        await watcher.bus.publish_event(granted)
        await eventually(lambda: watcher.used_mb() > 4 * idle_mb, what="memory in use")
        assert watcher.samples[-1].gpus[1].memory_used_mb == idle_mb

        await watcher.bus.publish_event(make_released(granted))
        await eventually(lambda: watcher.used_mb() == idle_mb, what="memory given back")
        assert watcher.samples[-1].gpus[0].utilization_percent == 0.0


async def test_a_grant_of_another_node_raises_nothing_here(nats_url: str, watcher: Watcher) -> None:
    here = make_granted(new_id())
    async with create_service(make_settings(nats_url)).running():
        await watcher.samples_beyond(1)
        idle_mb = watcher.used_mb()
        await watcher.bus.publish_event(make_granted(new_id(), node_id="node-b"))
        await watcher.bus.publish_event(make_released(here))
        await watcher.samples_beyond(5)

    assert {sample.gpus[0].memory_used_mb for sample in watcher.samples} == {idle_mb}


async def test_snapshot_after_release_has_no_load(nats_url: str, watcher: Watcher) -> None:
    """The scheduler asks before its release is heard; the grant may be heard after both."""
    granted = make_granted(new_id())
    async with create_service(make_settings(nats_url)).running():
        await watcher.samples_beyond(1)
        idle_mb = watcher.used_mb()
        await watcher.bus.publish_event(granted)
        await eventually(lambda: watcher.used_mb() > idle_mb, what="memory in use")

        reading = await watcher.snapshot(use_cache=True, released=granted.reservation_id)
        assert reading.gpus[0].memory_used_mb == idle_mb

        await watcher.bus.publish_event(granted)
        await watcher.samples_beyond(5)
        after = [sample for sample in watcher.samples if sample.sequence >= reading.sequence]
        assert {sample.gpus[0].memory_used_mb for sample in after} == {idle_mb}


async def test_simulated_agent_learns_holders_at_start(nats_url: str, watcher: Watcher) -> None:
    asked: list[ListReservations] = []
    granted = make_granted(new_id())
    async with (
        _scheduler_that_lists(nats_url, granted, asked),
        create_service(make_settings(nats_url)).running(),
    ):
        await watcher.samples_beyond(1)
        idle_mb = watcher.samples[0].gpus[1].memory_used_mb or 0
        await eventually(lambda: watcher.used_mb() > 2 * idle_mb, what="memory in use")

    assert asked[0].node_id == NODE


async def test_missed_release_still_ends_the_load(nats_url: str, watcher: Watcher) -> None:
    missed = make_granted(new_id())
    settings = make_settings(nats_url, inventory_seconds=0.2)
    async with create_service(settings).running():
        await watcher.samples_beyond(1)
        await watcher.bus.publish_event(missed)
        await eventually(lambda: watcher.used_mb() > 1000, what="memory in use")
        async with _scheduler_that_lists(nats_url, None, []):
            await eventually(lambda: watcher.used_mb() < 1000, what="memory given back")


@asynccontextmanager
async def _scheduler_that_lists(
    nats_url: str, granted: ReservationGranted | None, asked: list[ListReservations]
) -> AsyncIterator[None]:
    """Stands for a scheduler, of which only one answer is wanted."""

    async def answer(query: ListReservations) -> ReservationList:
        asked.append(query)
        if granted is None:
            return ReservationList(reservations=())
        view = ReservationView(
            reservation_id=granted.reservation_id,
            namespace="default",
            holder="test",
            state=ReservationState.ACTIVE,
            request=GpuRequest(),
            revision=3,
            requested_at=utcnow(),
            node_id=NODE,
            devices=granted.devices,
        )
        return ReservationList(reservations=(view,))

    service = Service(
        "scheduler",
        bus=Bus("scheduler", nats_url),
        routes=[query_route(answer, ListReservations)],
    )
    async with service.running():
        yield


async def test_host_without_gpus_has_empty_inventory(
    nats_url: str, watcher: Watcher, tmp_path: Path
) -> None:
    settings = make_settings(nats_url, source="auto", smi_path=str(tmp_path / "nvidia-smi"))
    async with create_service(settings).running():
        await eventually(lambda: bool(watcher.inventories), what="an inventory")
        reading = await watcher.snapshot()

    assert watcher.inventories[0].source is Source.NONE
    assert watcher.inventories[0].devices == ()
    assert reading.gpus == ()
    assert watcher.samples == []
    assert watcher.changes == [HealthKind.AGENT_STARTED, HealthKind.AGENT_STOPPED]


async def test_host_without_gpus_simulates_if_allowed(
    nats_url: str, watcher: Watcher, tmp_path: Path
) -> None:
    settings = make_settings(
        nats_url, source="auto", simulate=True, smi_path=str(tmp_path / "nvidia-smi")
    )
    async with create_service(settings).running():
        await watcher.samples_beyond(1)

    assert watcher.inventories[0].source is Source.SIMULATED


async def test_inventory_is_repeated_to_an_empty_bus(
    nats_server_factory: Callable[[], Awaitable[NatsServer]],
) -> None:
    server = await nats_server_factory()
    settings = make_settings(server.authenticated_url)
    async with create_service(settings).running():
        async with watching(server.authenticated_url) as before:
            await before.samples_beyond(1)
        await server.crash_and_lose_store()
        await server.start()
        async with watching(server.authenticated_url) as after:
            await eventually(lambda: bool(after.inventories), what="the inventory again")
            await after.samples_beyond(2)

    assert after.inventories[0].devices[0].uuid == FIRST_DEVICE


@pytest.mark.long
async def test_the_process_stops_in_order_on_sigterm(
    nats_url: str, watcher: Watcher, tmp_path: Path
) -> None:
    async with agent_process(nats_url, tmp_path) as process:
        await watcher.samples_beyond(2)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 40) == 0
    await eventually(
        lambda: watcher.changes == [HealthKind.AGENT_STARTED, HealthKind.AGENT_STOPPED],
        what="start and stop",
    )
