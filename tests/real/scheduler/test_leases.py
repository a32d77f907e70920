"""Leases that run out, devices that wait for a confirmed stop, cancels in every state."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from schemas.base import Event
from schemas.errors import Accepted, ErrorCode, Refused, Reply
from schemas.executor.attempts import FenceReservation
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.devices import Cordon, DeviceFreed, DeviceQuarantined, Drain, Uncordon
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import (
    CancelReservation,
    RequestReservation,
    ReservationCancelled,
    ReservationExpired,
    ReservationGranted,
    ReservationReleased,
    ReservationState,
)
from shared.clock import utcnow
from shared.ids import new_id
from shared.testing import eventually
from tests.support.disks.small_disk import every_disk_full
from tests.support.worlds.scheduler import World, accepted, refused


async def test_expired_lease_is_quarantined_until_stop(
    unhurried: World,
) -> None:
    node = await unhurried.add_node("alpha", 1)
    answers: list[Reply] = []

    def still_running_twice(command: FenceReservation) -> Reply:
        stopped = len(answers) >= 2
        answers.append(
            Accepted(command_id=command.command_id)
            if stopped
            else Refused(code=ErrorCode.STILL_RUNNING, message="stopping")
        )
        return answers[-1]

    node.answer_fence = still_running_twice
    first = await unhurried.request(GpuRequest(lease_ttl_seconds=3.0))
    granted = await unhurried.granted(first)
    began, began_at = unhurried.clock(), utcnow()
    accepted(await unhurried.renew(granted, activate=True))
    second = await unhurried.request()

    expired = await unhurried.event(ReservationExpired, first)
    freed = await unhurried.event(DeviceFreed)
    next_grant = await unhurried.granted(second)

    assert expired.occurred_at - began_at >= timedelta(seconds=2.9)
    assert unhurried.received_at(expired) - began <= 4.0
    assert expired.devices == granted.devices
    assert unhurried.seen(DeviceQuarantined)[0].reservation_id == first
    assert (freed.reservation_id, freed.device_uuid) == (first, granted.devices[0].uuid)
    assert len(node.fences) == 3
    assert {fence.epoch for fence in node.fences} == {granted.epoch}
    assert 0 <= unhurried.received_at(next_grant) - unhurried.received_at(freed) <= 0.4
    assert next_grant.epoch > granted.epoch
    assert refused(await unhurried.renew(granted)).code is ErrorCode.LEASE_LOST


async def test_a_renewed_lease_lives_on(steward: World) -> None:
    await steward.add_node("alpha", 1)
    reservation_id = await steward.request(GpuRequest(lease_ttl_seconds=3.0))
    granted = await steward.granted(reservation_id)
    before = await steward.view(reservation_id)

    accepted(await steward.renew(granted, activate=True))
    accepted(await steward.renew(granted, activate=True))

    after = await steward.view(reservation_id)
    assert before.lease_expires_at is not None
    assert after.lease_expires_at is not None
    assert after.lease_expires_at > before.lease_expires_at
    assert after.state is ReservationState.ACTIVE
    assert after.revision == 3


async def test_full_disk_refuses_requests_not_renewals(
    steward: World,
) -> None:
    await steward.add_node("alpha", 2)
    granted = await steward.granted(await steward.request())

    with every_disk_full():
        refusal = refused(
            await steward.bus.request(
                RequestReservation(command_id=new_id(), reservation_id=new_id())
            )
        )
        accepted(await steward.renew(granted, activate=True))

    assert refusal.code is ErrorCode.UNAVAILABLE
    assert "the disk is full" in refusal.message
    await steward.granted(await steward.request())


async def test_renewal_tells_stale_from_lost_holder(steward: World) -> None:
    await steward.add_node("alpha", 1)
    granted = await steward.granted(await steward.request())
    queued = await steward.request()

    stale = refused(await steward.renew(granted, epoch=granted.epoch + 1))
    waiting = refused(
        await steward.renew(_like(granted, reservation_id=queued), epoch=granted.epoch)
    )
    unknown = refused(await steward.renew(_like(granted, reservation_id=new_id())))
    accepted(await steward.release(granted))
    lost = refused(await steward.renew(granted))

    assert stale.code is ErrorCode.STALE_EPOCH
    assert waiting.code is ErrorCode.CONFLICT
    assert unknown.code is ErrorCode.NOT_FOUND
    assert lost.code is ErrorCode.LEASE_LOST


async def test_release_without_stop_frees_after_confirm(
    steward: World,
) -> None:
    await steward.add_node("alpha", 1, executor=False)
    granted = await steward.granted(await steward.request())
    next_in_line = await steward.request()

    accepted(await steward.release(granted, stopped=False))
    view = await steward.view(granted.reservation_id)
    await steward.waiting(next_in_line, ReasonCode.QUARANTINED)
    accepted(await steward.release(granted, stopped=True))

    assert view.state is ReservationState.RELEASING
    assert view.quarantined
    await steward.event(DeviceFreed)
    await steward.event(ReservationReleased, granted.reservation_id)
    await steward.granted(next_in_line)
    again = accepted(await steward.release(granted, stopped=True))
    assert again.revision == (await steward.view(granted.reservation_id)).revision


@pytest.mark.parametrize("active", [False, True], ids=["granted", "active"])
async def test_cancelled_grant_is_freed_after_fence(steward: World, *, active: bool) -> None:
    node = await steward.add_node("alpha", 1)
    reservation_id = await steward.request()
    granted = await steward.granted(reservation_id)
    if active:
        accepted(await steward.renew(granted, activate=True))

    answer = accepted(await steward.cancel(reservation_id))
    cancelled = await steward.event(ReservationCancelled, reservation_id)
    await steward.event(DeviceFreed)

    assert (cancelled.epoch, cancelled.node_id) == (granted.epoch, "alpha")
    assert answer.revision == cancelled.revision
    assert [fence.reservation_id for fence in node.fences] == [reservation_id]
    view = await steward.view(reservation_id)
    assert (view.state, view.quarantined) == (ReservationState.CANCELLED, False)
    await steward.granted(await steward.request())


async def test_queued_request_is_cancelled_without_fence(steward: World) -> None:
    node = await steward.add_node("alpha", 1)
    await steward.granted(await steward.request())
    reservation_id = await steward.request()
    view = await steward.view(reservation_id)
    changed_since = CancelReservation(
        command_id=new_id(),
        reservation_id=reservation_id,
        expected_revision=view.revision + 1000,
    )

    refusal = refused(await steward.bus.request(changed_since))
    accepted(await steward.cancel(reservation_id))

    assert refusal.code is ErrorCode.CHANGED_SINCE
    cancelled = await steward.event(ReservationCancelled, reservation_id)
    assert cancelled.epoch is None
    assert not node.fences
    assert (await steward.view(reservation_id)).state is ReservationState.CANCELLED


async def test_cancel_of_ended_reservation_is_no_change(
    steward: World,
) -> None:
    await steward.add_node("alpha", 1)
    granted = await steward.granted(await steward.request())
    accepted(await steward.release(granted))
    before = await steward.view(granted.reservation_id)

    accepted(await steward.cancel(granted.reservation_id))
    unknown = refused(await steward.cancel(new_id()))
    unstorable = CancelReservation(
        command_id=new_id(), reservation_id=granted.reservation_id, reason="a\x00"
    )

    assert refused(await steward.bus.request(unstorable)).path == "$.reason"
    assert await steward.view(granted.reservation_id) == before
    assert unknown.code is ErrorCode.NOT_FOUND


async def test_holder_may_confirm_a_cancelled_stop(steward: World) -> None:
    await steward.add_node("alpha", 1, executor=False)
    granted = await steward.granted(await steward.request())
    accepted(await steward.cancel(granted.reservation_id))

    accepted(await steward.release(granted))

    freed = await steward.event(DeviceFreed)
    assert freed.reservation_id == granted.reservation_id
    assert (await steward.view(granted.reservation_id)).state is ReservationState.CANCELLED
    await steward.granted(await steward.request())


async def test_only_admin_frees_without_an_executor(
    steward: World,
) -> None:
    await steward.add_node("alpha", 1, executor=False)
    granted = await steward.granted(await steward.request())
    accepted(await steward.cancel(granted.reservation_id))
    waiting = await steward.request()
    await steward.waiting(waiting, ReasonCode.QUARANTINED)

    kept = await steward.bus.request(Uncordon(command_id=new_id(), node_id="alpha"))
    accepted(kept)
    assert not steward.seen(DeviceFreed)
    accepted(
        await steward.bus.request(
            Uncordon(command_id=new_id(), node_id="alpha", confirm_stopped=True, reason="rebooted")
        )
    )

    assert (await steward.event(DeviceFreed)).reason == "rebooted"
    await steward.granted(waiting)


async def test_cordoned_device_is_not_granted(steward: World) -> None:
    node = await steward.add_node("alpha", 1)
    await steward.known("alpha", 1)
    uuid = node.gpus[0].uuid
    cordon = Cordon(command_id=new_id(), node_id="alpha", device_uuid=uuid)
    accepted(await steward.bus.request(cordon))
    again = replace(cordon, command_id=new_id(), reason="its fan is being replaced")
    accepted(await steward.bus.request(again))

    waiting = await steward.request()
    view = await steward.waiting(waiting, ReasonCode.CORDONED)
    assert "its fan is being replaced" in view.reasons[0].message
    uncordon = Uncordon(command_id=new_id(), node_id="alpha", device_uuid=uuid)
    accepted(await steward.bus.request(uncordon))
    unknown = Cordon(command_id=new_id(), node_id="alpha", device_uuid="GPU-none")

    await steward.granted(waiting)
    assert refused(await steward.bus.request(unknown)).code is ErrorCode.NOT_FOUND


async def test_drained_node_ends_its_reservations(
    steward: World,
) -> None:
    await steward.add_node("alpha", 2)
    granted = await steward.granted(await steward.request())

    accepted(await steward.bus.request(Drain(command_id=new_id(), node_id="alpha")))

    await steward.event(ReservationCancelled, granted.reservation_id)
    await steward.event(DeviceFreed)
    await steward.waiting(await steward.request(), ReasonCode.CORDONED)


async def test_revisions_of_an_aggregate_grow(steward: World) -> None:
    await steward.add_node("alpha", 2)
    for _ in range(3):
        granted = await steward.granted(await steward.request())
        accepted(await steward.cancel(granted.reservation_id))
    await eventually(lambda: len(steward.seen(DeviceFreed)) == 3)

    revisions: dict[object, list[int]] = {}
    for _, event in steward.events:
        revisions.setdefault(_aggregate(event), []).append(event.revision)

    assert revisions["alpha"] == [1, 2, 3, 4, 5, 6]
    assert all(seen == list(range(1, len(seen) + 1)) for seen in revisions.values())


def _aggregate(event: Event) -> object:
    return getattr(event, type(event).key_field or "")


def _like(granted: ReservationGranted, **changes: object) -> ReservationGranted:
    return replace(granted, **changes)
