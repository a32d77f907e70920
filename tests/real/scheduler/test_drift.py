"""Drifts as the running scheduler finds them: told once, acted on, over when they are."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from schemas.errors import Accepted, ErrorCode
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.devices import DeviceCordoned, DeviceFreed, DeviceUncordoned, Uncordon
from schemas.scheduler.drifts import DriftAction, DriftDetected, DriftKind, DriftResolved
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import ReservationLost, ReservationReleased
from schemas.scheduler.views import DriftList, ListDrifts
from schemas.telemetry.readings import GpuProcess
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.testing import NatsServer, eventually
from shared.waiting import cancel_and_wait
from tests.support.worlds.scheduler import FakeNode, World, accepted, refused, scheduler, world

QUICK: dict[str, Any] = {
    "reconcile_interval_seconds": 0.1,
    "ghost_seconds": 0.3,
    "orphan_seconds": 0.3,
    "squatter_seconds": 0.3,
    "stale_agent_seconds": 1.0,
    "node_lost_seconds": 2.0,
}


@pytest.fixture
async def steward(nats_url: str, postgres_dsn: str) -> AsyncIterator[World]:
    async with scheduler(nats_url, postgres_dsn, **QUICK), world(nats_url) as around:
        yield around


@asynccontextmanager
async def sampling(node: FakeNode) -> AsyncIterator[None]:
    """Heard of, however long a busy machine takes for the body; not afterwards."""
    task = asyncio.create_task(node.keep_sampling())
    try:
        yield
    finally:
        await cancel_and_wait(task)


def of_kind(steward: World, kind: DriftKind) -> list[DriftDetected]:
    return [event for event in steward.seen(DriftDetected) if event.drift is kind]


async def test_clock_skew_is_a_drift_until_it_is_set(steward: World) -> None:
    node = await steward.add_node("alpha", 1, interval_seconds=0.2)
    node.clock_off_by = timedelta(minutes=-10)
    async with sampling(node):
        told = await steward.event(DriftDetected)
        node.clock_off_by = timedelta()
        over = await steward.event(DriftResolved)

    assert (told.drift, told.action, told.node_id) == (
        *(DriftKind.CLOCK_SKEW, DriftAction.NONE, "alpha"),
    )
    assert "10 min behind" in told.detail
    assert over.drift_id == told.drift_id


async def test_unexplained_process_delays_a_grant(
    steward: World,
) -> None:
    node = await steward.add_node("alpha", 1, interval_seconds=0.2)
    node.gpus[0].processes = (GpuProcess(pid=4711, name="python", memory_used_mb=100),)
    await node.publish_sample()
    await steward.known("alpha", 1)

    waiting = await steward.request()
    view = await steward.waiting(waiting, ReasonCode.FOREIGN_PROCESS)
    squatter = await steward.event(DriftDetected)
    node.gpus[0].processes = (GpuProcess(pid=1, name="Xorg", memory_used_mb=4),)

    assert "4711" in view.reasons[0].message
    assert (squatter.drift, squatter.action) == (DriftKind.SQUATTER, DriftAction.AVOID)
    assert squatter.pids == (4711,)
    await steward.granted(waiting)
    resolved = await steward.event(DriftResolved)
    assert (resolved.drift_id, resolved.since_at) == (squatter.drift_id, squatter.since_at)
    assert len(of_kind(steward, DriftKind.SQUATTER)) == 1


async def test_drifts_are_listed_part_by_part(steward: World) -> None:
    node = await steward.add_node("alpha", 3, interval_seconds=0.2)
    for gpu in node.gpus:
        gpu.processes = (GpuProcess(pid=4711, name="python", memory_used_mb=100),)
    await steward.known("alpha", 3)
    await eventually(lambda: len(of_kind(steward, DriftKind.SQUATTER)) == 3, what="3 drifts")

    whole = (await _drifts(steward)).drifts
    page = await steward.bus.query(ListDrifts(limit=2), DriftList)
    rest = await steward.bus.query(ListDrifts(limit=2, cursor=page.next_cursor), DriftList)

    found = [drift.drift_id for drift in (*page.drifts, *rest.drifts)]
    assert found == [drift.drift_id for drift in whole]
    assert (len(found), rest.next_cursor) == (3, None)


async def test_former_processes_delay_nothing_after_read(
    steward: World,
) -> None:
    node = await steward.add_node("alpha", 1, samples=False)
    await node.publish_sample()
    first = await steward.granted(await steward.request())
    node.gpus[0].processes = (GpuProcess(pid=5, reservation_id=first.reservation_id),)
    await node.publish_sample()
    second = await steward.request()
    await steward.waiting(second, ReasonCode.HELD)

    node.gpus[0].processes = ()
    accepted(await steward.release(first))

    assert (await steward.granted(second)).waited_seconds < 5


async def test_drift_keeps_its_age_across_a_restart(nats_url: str, postgres_dsn: str) -> None:
    async with world(nats_url) as around:
        async with scheduler(nats_url, postgres_dsn, **QUICK):
            node = await around.add_node("alpha", 1, interval_seconds=0.2)
            node.gpus[0].processes = (GpuProcess(pid=7),)
            first = await around.event(DriftDetected)
            before = await _drifts(around)
        async with scheduler(nats_url, postgres_dsn, **QUICK):
            after = await _drifts(around)
            node.gpus[0].processes = ()
            await around.event(DriftResolved)
            gone, ended = await _drifts(around), await _drifts(around, ended=True)

    assert [drift.drift_id for drift in before.drifts] == [first.drift_id]
    assert [(d.drift_id, d.since_at) for d in after.drifts] == [(first.drift_id, first.since_at)]
    assert not gone.drifts
    assert ended.drifts[0].ended_at is not None
    assert len(around.seen(DriftDetected)) == 1


@pytest.mark.long
async def test_ghost_is_released_once_node_confirms(
    steward: World,
) -> None:
    node = await steward.add_node("alpha", 1, interval_seconds=0.2)
    node.gpus[0].processes = ()
    ghost = await steward.granted(await steward.request(GpuRequest(lease_ttl_seconds=3.0)))
    await node.answer_running()
    accepted(await steward.renew(ghost, activate=True))

    async with _renewed(steward, ghost):
        detected = await steward.event(DriftDetected)
        released = await steward.event(ReservationReleased, ghost.reservation_id)

    assert detected.drift is DriftKind.GHOST_RESERVATION
    assert "ghost" in released.reason
    assert [fence.reservation_id for fence in node.fences] == [ghost.reservation_id]
    await steward.event(DeviceFreed, ghost.reservation_id)
    await steward.event(DriftResolved)
    assert refused(await steward.renew(ghost)).code is ErrorCode.LEASE_LOST


async def test_workload_without_reservation_is_fenced(steward: World) -> None:
    node = await steward.add_node("alpha", 2, interval_seconds=0.2)
    over = await steward.granted(await steward.request())
    live = await steward.granted(await steward.request())
    accepted(await steward.release(over))
    node.workloads = {over.reservation_id: (11, 12), live.reservation_id: (13,)}
    await node.answer_running()

    orphan = await steward.event(DriftDetected)
    node.workloads.pop(over.reservation_id)
    await steward.event(DriftResolved)

    assert (orphan.drift, orphan.action) == (DriftKind.ORPHAN_WORKLOAD, DriftAction.FENCE)
    assert (orphan.reservation_id, orphan.pids) == (over.reservation_id, (11, 12))
    assert {fence.reservation_id for fence in node.fences} == {over.reservation_id}
    accepted(await steward.renew(live))


async def test_silent_node_is_lost_with_its_holdings(steward: World) -> None:
    await steward.add_node("alpha", 1, interval_seconds=0.2)
    beta = await steward.add_node("beta", 1, samples=False, interval_seconds=0.2)
    async with sampling(beta):
        request = GpuRequest(node_ids=("beta",), lease_ttl_seconds=60.0)
        granted = await steward.granted(await steward.request(request))

    lost = await steward.event(ReservationLost, granted.reservation_id)

    assert "beta" in {event.node_id for event in steward.seen(DriftDetected)}
    assert "not heard" in lost.reason
    assert (await steward.event(DeviceCordoned)).node_id == "beta"
    await beta.report_inventory()
    async with sampling(beta):
        waiting = await steward.request(GpuRequest(node_ids=("beta",)))
        await steward.waiting(waiting, ReasonCode.CORDONED)
        accepted(await steward.bus.request(Uncordon(command_id=new_id(), node_id="beta")))
        await steward.granted(waiting)
    assert len(steward.seen(DeviceCordoned)) == 1


async def test_stopped_agent_is_drift_then_lost_node(nats_url: str, postgres_dsn: str) -> None:
    quick = {**QUICK, "stale_agent_seconds": 0.5, "recovery_quiet_seconds": 0.3}
    async with scheduler(nats_url, postgres_dsn, **quick), world(nats_url) as steward:
        await steward.add_node("alpha", 1, interval_seconds=0.2)
        beta = await steward.add_node("beta", 1, samples=False, interval_seconds=0.2)
        async with sampling(beta):
            await steward.known("beta", 1)

        await beta.report_stop()
        drift = await steward.event(DriftDetected)
        cordoned = await steward.event(DeviceCordoned)
        beta.boot_id = new_id()
        await beta.report_inventory()
        waiting = await steward.request(GpuRequest(node_ids=("beta",)))
        steward.running.append(steward.tasks.create_task(beta.keep_sampling()))

        assert (drift.node_id, drift.drift) == ("beta", DriftKind.STALE_AGENT)
        assert drift.detail == "its telemetry agent has stopped"
        assert cordoned.node_id == "beta"
        assert cordoned.reason == "node lost: its agent has stopped, not heard for 2 s"
        await steward.granted(waiting)
        assert (await steward.event(DeviceUncordoned)).node_id == "beta"


@pytest.mark.long
async def test_no_node_is_lost_to_an_outage_of_the_bus(
    nats_server_factory: Callable[[], Awaitable[NatsServer]], postgres_dsn: str
) -> None:
    server = await nats_server_factory()
    url = server.authenticated_url
    async with scheduler(url, postgres_dsn, **QUICK), world(url) as around:
        for name in ("alpha", "beta"):
            await around.add_node(name, 1, interval_seconds=0.2)
            await around.known(name, 1)
        request = GpuRequest(node_ids=("beta",), lease_ttl_seconds=60.0)
        granted = await around.granted(await around.request(request))

        await server.crash_and_lose_store()
        outage_seconds = 2 * QUICK["node_lost_seconds"]
        await asyncio.sleep(outage_seconds)  # the length of the outage is the case
        await server.start()

        async def is_renewed() -> bool:
            try:
                return isinstance(await around.renew(granted), Accepted)
            except UnavailableError:
                return False

        await eventually(is_renewed, what="the lease to be renewed")
        await around.granted(await around.request())
        assert not around.seen(ReservationLost)
        assert not around.seen(DeviceCordoned)


async def _drifts(steward: World, *, ended: bool = False) -> DriftList:
    return await steward.bus.query(ListDrifts(ended=ended), DriftList)


@asynccontextmanager
async def _renewed(steward: World, granted: Any) -> AsyncIterator[UUID]:
    """Renew a lease as its holder would."""

    async def renew() -> None:
        while True:
            await steward.renew(granted)
            await asyncio.sleep(0.5)

    task = asyncio.create_task(renew())
    try:
        yield granted.reservation_id
    finally:
        await cancel_and_wait(task)
