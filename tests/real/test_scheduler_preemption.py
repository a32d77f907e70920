"""Reservations that give way to others: announced, ended after the notice, fenced like expired."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from schemas.gpu_request import GpuRequest
from schemas.scheduler import (
    DeviceFreed,
    ReservationGranted,
    ReservationPreempted,
    ReservationPreempting,
    ReservationReleased,
)
from services.scheduler import grants, store
from services.scheduler.domain.decisions import Preempt
from shared.ids import new_id
from tests.scheduler_world import World, accepted, ledger, scheduler, world


@pytest.fixture
async def steward(nats_url: str, postgres_dsn: str) -> AsyncIterator[World]:
    async with scheduler(nats_url, postgres_dsn), world(nats_url) as around:
        yield around


async def preempt(postgres_dsn: str, granted: ReservationGranted, *, seconds: float) -> None:
    """Carry out what the engine decides for somebody more important."""
    async with ledger(postgres_dsn) as connection, connection.transaction():
        now = await store.database_now(connection)
        decision = Preempt(
            reservation_id=granted.reservation_id,
            for_reservation_id=new_id(),
            until_at=now + timedelta(seconds=seconds),
        )
        await grants.carry_out(connection, [decision], now)


async def test_who_does_not_stop_within_the_notice_is_ended_and_fenced(
    steward: World, postgres_dsn: str
) -> None:
    node = await steward.add_node("alpha", 1)
    granted = await steward.granted(await steward.request(GpuRequest(preemptible=True)))
    waiting = await steward.request()

    await preempt(postgres_dsn, granted, seconds=0.5)
    told = await steward.event(ReservationPreempting, granted.reservation_id)
    accepted(await steward.renew(granted))  # the lease lives as long as the notice
    ended = await steward.event(ReservationPreempted, granted.reservation_id)
    freed = await steward.event(DeviceFreed)
    next_grant = await steward.granted(waiting)

    assert 0 < told.grace_seconds <= 0.5
    assert ended.revision == told.revision + 1
    assert ended.devices == granted.devices
    assert [fence.reservation_id for fence in node.fences] == [granted.reservation_id]
    assert steward.heard_at(next_grant) >= steward.heard_at(freed)


async def test_who_stops_in_time_is_preempted_without_a_fence(
    steward: World, postgres_dsn: str
) -> None:
    node = await steward.add_node("alpha", 1)
    granted = await steward.granted(await steward.request(GpuRequest(preemptible=True)))
    waiting = await steward.request()

    await preempt(postgres_dsn, granted, seconds=60)
    accepted(await steward.release(granted))

    await steward.event(ReservationPreempted, granted.reservation_id)
    await steward.granted(waiting)
    assert not node.fences
    assert not steward.seen(ReservationReleased)
