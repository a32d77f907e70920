"""Reservations that give way to others: announced, ended after the notice, fenced like expired."""

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.devices import DeviceFreed
from schemas.scheduler.namespaces import PreemptionCause, SetNamespace
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import (
    ReservationPreempted,
    ReservationPreempting,
    ReservationReleased,
)
from shared.ids import new_id
from tests.support.worlds.scheduler import accepted, scheduler, world

PREEMPTIBLE = GpuRequest(preemptible=True)
IMPORTANT = GpuRequest(priority=10)


async def test_holder_ignoring_preemption_is_fenced(nats_url: str, postgres_dsn: str) -> None:
    async with (
        scheduler(nats_url, postgres_dsn, preemption_grace_seconds=0.5),
        world(nats_url) as steward,
    ):
        node = await steward.add_node("alpha", 1)
        granted = await steward.granted(await steward.request(PREEMPTIBLE))
        waiting = await steward.request(IMPORTANT)

        told = await steward.event(ReservationPreempting, granted.reservation_id)
        accepted(await steward.renew(granted))  # the lease lives as long as the notice
        ended = await steward.event(ReservationPreempted, granted.reservation_id)
        freed = await steward.event(DeviceFreed)
        next_grant = await steward.granted(waiting)

        assert 0 < told.grace_seconds <= 0.5
        assert ended.revision == told.revision + 1
        assert ended.devices == granted.devices
        assert str(waiting) in ended.reason
        assert [fence.reservation_id for fence in node.fences] == [granted.reservation_id]
        assert steward.received_at(next_grant) >= steward.received_at(freed)


async def test_holder_stopping_in_time_is_not_fenced(nats_url: str, postgres_dsn: str) -> None:
    async with (
        scheduler(nats_url, postgres_dsn, preemption_grace_seconds=60),
        world(nats_url) as steward,
    ):
        node = await steward.add_node("alpha", 1)
        granted = await steward.granted(await steward.request(PREEMPTIBLE))
        equal = await steward.request()
        await steward.waiting(equal, ReasonCode.HELD)
        waiting = await steward.request(IMPORTANT)

        await steward.event(ReservationPreempting, granted.reservation_id)
        noticed = await steward.view(granted.reservation_id)
        accepted(await steward.release(granted))

        assert "has to stop by" in noticed.reason
        assert f"for reservation {waiting}" in noticed.reason
        await steward.event(ReservationPreempted, granted.reservation_id)
        await steward.granted(waiting)
        assert not node.fences
        assert not steward.seen(ReservationReleased)
        await steward.waiting(equal, ReasonCode.HELD)


async def test_borrowed_gpus_return_to_the_guaranteed(nats_url: str, postgres_dsn: str) -> None:
    async with (
        scheduler(nats_url, postgres_dsn, preemption_grace_seconds=600),
        world(nats_url) as steward,
    ):
        await steward.add_node("alpha", 1)
        granted = await steward.granted(await steward.request())
        guarantee = SetNamespace(command_id=new_id(), namespace="b", guaranteed_gpus=1.0)
        accepted(await steward.bus.request(guarantee))
        waiting = await steward.request(namespace="b", holder="b")

        told = await steward.event(ReservationPreempting, granted.reservation_id)
        noticed = await steward.view(granted.reservation_id)
        accepted(await steward.release(granted))
        ended = await steward.event(ReservationPreempted, granted.reservation_id)
        await steward.granted(waiting)

    assert (told.cause, told.preempted_for) == (PreemptionCause.GUARANTEE, waiting)
    assert noticed.preempted_by is PreemptionCause.GUARANTEE
    assert "takes back what is guaranteed to it" in noticed.reason
    assert ended.revision == told.revision + 1
