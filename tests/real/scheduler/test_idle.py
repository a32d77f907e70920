"""Idle reservations as the running scheduler finds them: warned of, released or preempted, kept."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from schemas.errors import ErrorCode
from schemas.executor.engine_samples import EngineReading
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.idle import (
    ExemptReservation,
    IdleAction,
    ReservationExempted,
    ReservationFoundActive,
    ReservationFoundIdle,
    ReservationMadePreemptible,
)
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import (
    ReservationGranted,
    ReservationPreempting,
    ReservationReleased,
    experiment_holder,
)
from schemas.scheduler.views import ExplainReservation, Explanation
from shared.clock import utcnow
from shared.ids import new_id
from tests.support.worlds.scheduler import FakeNode, World, accepted, refused, scheduler, world

QUICK: dict[str, Any] = {
    "reconcile_interval_seconds": 0.1,
    "idle_window_seconds": 0.4,
    "idle_grace_seconds": 0.4,
}
KEPT = GpuRequest(lease_ttl_seconds=600.0)


@asynccontextmanager
async def platform(
    nats_url: str, postgres_dsn: str, **settings: Any
) -> AsyncIterator[tuple[World, FakeNode]]:
    async with (
        scheduler(nats_url, postgres_dsn, **{**QUICK, **settings}),
        world(nats_url) as around,
    ):
        node = await around.add_node("alpha", 1, interval_seconds=0.5)
        await around.known("alpha", 1)
        yield around, node


async def explained(steward: World, of: ReservationGranted) -> Explanation:
    query = ExplainReservation(reservation_id=of.reservation_id)
    return await steward.bus.query(query, Explanation)


def exemption(of: ReservationGranted, length: timedelta) -> ExemptReservation:
    return ExemptReservation(
        command_id=new_id(),
        reservation_id=of.reservation_id,
        reason="a demo tonight",
        until_at=utcnow() + length,
    )


async def test_idle_reservation_is_warned_then_released(nats_url: str, postgres_dsn: str) -> None:
    async with platform(nats_url, postgres_dsn, idle_action=IdleAction.RELEASE) as (steward, node):
        first = await steward.granted(await steward.request(KEPT))
        waiting = await steward.request()
        warned = await steward.event(ReservationFoundIdle, first.reservation_id)
        ended = await steward.event(ReservationReleased, first.reservation_id)
        second = await steward.granted(waiting)

    assert warned.action is IdleAction.RELEASE
    assert warned.acts_at is not None
    assert warned.since_at < warned.acts_at
    assert "released as idle" in ended.reason
    assert [fence.reservation_id for fence in node.fences] == [first.reservation_id]
    assert second.devices == first.devices
    assert steward.seen(ReservationFoundIdle, first.reservation_id) == [warned]
    assert warned.revision < ended.revision


async def test_idle_default_is_warning_taken_back_by_use(nats_url: str, postgres_dsn: str) -> None:
    async with platform(nats_url, postgres_dsn) as (steward, node):
        held = await steward.granted(await steward.request(KEPT))
        warned = await steward.event(ReservationFoundIdle, held.reservation_id)
        view, why = await steward.view(held.reservation_id), await explained(steward, held)
        node.gpus[0].utilization_percent = 90.0
        await steward.event(ReservationFoundActive, held.reservation_id)
        after = await steward.view(held.reservation_id)

    assert (warned.action, warned.acts_at) == (IdleAction.WARN, None)
    assert view.idle is not None
    assert view.idle.since_at == warned.since_at
    assert "nothing has used its GPUs since" in why.summary
    assert after.idle is None


async def test_idle_warning_survives_a_new_leader(nats_url: str, postgres_dsn: str) -> None:
    async with world(nats_url) as around:
        async with scheduler(nats_url, postgres_dsn, **QUICK):
            node = await around.add_node("alpha", 1, interval_seconds=0.5)
            await around.known("alpha", 1)
            held = await around.granted(await around.request(KEPT))
            first = await around.event(ReservationFoundIdle, held.reservation_id)
        async with scheduler(
            nats_url, postgres_dsn, **{**QUICK, "idle_action": IdleAction.RELEASE}
        ):
            await node.report_inventory()
            ended = await around.event(ReservationReleased, held.reservation_id)

    assert around.seen(ReservationFoundIdle) == [first]
    assert ended.occurred_at - first.occurred_at >= timedelta(seconds=0.8)


async def test_idle_reservation_gives_way_by_policy(nats_url: str, postgres_dsn: str) -> None:
    settings = {"idle_actions": "default=preemptible", "preemption_grace_seconds": 0.2}
    async with platform(nats_url, postgres_dsn, **settings) as (steward, _):
        first = await steward.granted(await steward.request(KEPT))
        await steward.event(ReservationMadePreemptible, first.reservation_id)
        second = await steward.request()
        await steward.event(ReservationPreempting, first.reservation_id)
        got = await steward.granted(second)

    assert got.devices == first.devices


async def test_one_that_is_used_again_gives_way_no_more(nats_url: str, postgres_dsn: str) -> None:
    async with platform(nats_url, postgres_dsn, idle_action=IdleAction.PREEMPTIBLE) as (
        steward,
        node,
    ):
        first = await steward.granted(await steward.request(KEPT))
        await steward.event(ReservationMadePreemptible, first.reservation_id)
        node.gpus[0].utilization_percent = 90.0
        await steward.event(ReservationFoundActive, first.reservation_id)
        await steward.waiting(await steward.request(), ReasonCode.HELD)

    assert not steward.seen(ReservationPreempting)


async def test_experiment_is_idle_without_requests(nats_url: str, postgres_dsn: str) -> None:
    """Something of it runs, and its GPU is quiet, all along."""
    async with platform(nats_url, postgres_dsn) as (steward, node):
        await node.answer_running()
        holder = experiment_holder(new_id(), "tuning", 1)
        held = await steward.granted(await steward.request(KEPT, holder=holder))
        node.workloads[held.reservation_id] = (1,)
        running = 0.0

        async def tell() -> None:
            while True:
                await node.publish_engine(held, EngineReading(running=running, waiting=0.0))
                await asyncio.sleep(0.1)

        steward.running.append(steward.tasks.create_task(tell()))
        await steward.event(ReservationFoundIdle, held.reservation_id)
        running = 1.0
        await steward.event(ReservationFoundActive, held.reservation_id)


async def test_exempted_reservation_is_not_idle(nats_url: str, postgres_dsn: str) -> None:
    async with platform(nats_url, postgres_dsn) as (steward, _):
        held = await steward.granted(await steward.request(KEPT))
        await steward.event(ReservationFoundIdle, held.reservation_id)
        command = exemption(held, timedelta(hours=1))
        await asyncio.gather(*(steward.bus.request(command) for _ in range(3)))
        told = await steward.event(ReservationExempted, held.reservation_id)
        await steward.event(ReservationFoundActive, held.reservation_id)
        view = await steward.view(held.reservation_id)

    assert (told.reason, told.until_at) == ("a demo tonight", command.until_at)
    assert (view.idle, view.idle_exempt_reason) == (None, "a demo tonight")
    assert len(steward.seen(ReservationExempted)) == 1


async def test_an_exemption_ends_within_a_month(nats_url: str, postgres_dsn: str) -> None:
    async with platform(nats_url, postgres_dsn) as (steward, _):
        held = await steward.granted(await steward.request(KEPT))
        replies = [
            refused(await steward.bus.request(exemption(held, length)))
            for length in (timedelta(seconds=-1), timedelta(days=31))
        ]
        accepted(await steward.release(held))
        over = refused(await steward.bus.request(exemption(held, timedelta(days=1))))

    assert [reply.code for reply in replies] == [ErrorCode.BAD_REQUEST] * 2
    assert over.code is ErrorCode.CONFLICT
