"""Faults of devices: cordoned with the reason, what lives there is lost, once per fault."""

from typing import Any

from schemas.base import subject_for
from schemas.errors import ErrorCode
from schemas.executor.attempts import FenceReservation
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.devices import (
    Cordon,
    CordonCause,
    CordonState,
    DeviceCordoned,
    DeviceFreed,
    DeviceUncordoned,
    Uncordon,
)
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import ReservationLost, ReservationState
from schemas.scheduler.views import AllocationMap, GetAllocationMap
from schemas.telemetry.readings import FaultSeen, HealthAction, HealthChanged, HealthKind
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.codec import encode
from shared.testing import eventually
from tests.support.worlds.scheduler import (
    FakeGpu,
    FakeNode,
    World,
    accepted,
    refused,
    scheduler,
    world,
)


async def tell_xid(steward: World, node: FakeNode, **changes: Any) -> HealthChanged:
    event = HealthChanged(
        **{
            "message_id": new_id(),
            "occurred_at": utcnow(),
            "revision": 100,
            "node_id": node.node_id,
            "boot_id": node.boot_id,
            "change": HealthKind.XID,
            "device_uuid": node.gpus[0].uuid,
            "xid": 48,
            "detail": "double bit error",
            "action": HealthAction.RESET,
            **changes,
        }
    )
    await steward.bus.publish_event(event)
    return event


async def test_gpu_that_needs_reset_is_cordoned(
    steward: World,
) -> None:
    node = await steward.add_node("alpha", 1)
    fences: list[FenceReservation] = node.fences
    granted = await steward.granted(await steward.request())
    accepted(await steward.renew(granted, activate=True))

    await tell_xid(steward, node)

    lost = await steward.event(ReservationLost, granted.reservation_id)
    assert (lost.epoch, lost.reason) == (granted.epoch, "XID 48: double bit error")
    assert lost.devices == granted.devices
    assert (await steward.event(DeviceCordoned)).reason == lost.reason
    refusal = refused(await steward.renew(granted))
    assert refusal.code is ErrorCode.LEASE_LOST
    await steward.event(DeviceFreed, granted.reservation_id)
    assert [fence.reservation_id for fence in fences] == [granted.reservation_id]
    assert (await steward.view(granted.reservation_id)).state is ReservationState.LOST
    view = await steward.waiting(await steward.request(), ReasonCode.CORDONED)
    assert "XID 48" in view.reasons[0].message


async def test_repeated_fault_after_recovery_is_ignored(
    steward: World,
) -> None:
    node = await steward.add_node("alpha", 1)
    await steward.known("alpha", 1)
    event = await tell_xid(steward, node)
    await steward.event(DeviceCordoned)
    accepted(await steward.bus.request(Uncordon(command_id=new_id(), node_id="alpha")))
    granted = await steward.granted(await steward.request())

    node.faults[node.gpus[0].uuid] = (_as_seen(event),)
    await node.report_inventory()
    await steward.bus.publish_stored(subject_for(event), encode(event), new_id())
    # What is told afterwards is acted on after it.
    sentinel = await steward.add_node("gamma", 1)
    await steward.known("gamma", 1)
    await tell_xid(steward, sentinel)
    await eventually(lambda: len(steward.seen(DeviceCordoned)) > 1)

    assert [e.node_id for e in steward.seen(DeviceCordoned)] == ["alpha", "gamma"]
    assert len(steward.seen(DeviceUncordoned)) == 1
    assert not steward.seen(ReservationLost)
    accepted(await steward.renew(granted))


async def test_fault_of_missed_event_is_in_inventory(steward: World) -> None:
    node = await steward.add_node("alpha", 2)
    await steward.known("alpha", 2)
    missed = FaultSeen(
        event_id=new_id(),
        occurred_at=utcnow(),
        change=HealthKind.ROW_REMAP_FAILED,
        action=HealthAction.DRAIN,
    )
    node.faults["GPU-alpha-1"] = (missed,)

    await node.report_inventory()

    cordoned = await steward.event(DeviceCordoned)
    assert (cordoned.device_uuid, cordoned.reason) == ("GPU-alpha-1", "row remap failed")
    granted = await steward.granted(
        await steward.request(GpuRequest(device_uuids=("GPU-alpha-0",)))
    )
    assert granted.devices[0].uuid == "GPU-alpha-0"


async def test_new_gpu_of_cordoned_node_is_cordoned(
    steward: World,
) -> None:
    """What counts the time out of service knows it from events alone."""
    node = await steward.add_node("alpha", 1)
    await steward.known("alpha", 1)
    cordon = Cordon(command_id=new_id(), node_id="alpha", reason="new fan")
    accepted(await steward.bus.request(cordon))
    await steward.event(DeviceCordoned)

    node.gpus.append(FakeGpu(uuid="GPU-alpha-1", index=1))
    await node.report_inventory()
    await node.report_inventory()
    await eventually(lambda: len(steward.seen(DeviceCordoned)) > 1)
    accepted(await steward.bus.request(Uncordon(command_id=new_id(), node_id="alpha")))
    await eventually(lambda: len(steward.seen(DeviceUncordoned)) == 2)

    told = [(event.device_uuid, event.reason) for event in steward.seen(DeviceCordoned)]
    assert told == [("GPU-alpha-0", "new fan"), ("GPU-alpha-1", "its node is cordoned")]


async def test_cordon_of_a_loss_lifts_only_itself(nats_url: str, postgres_dsn: str) -> None:
    """Two GPUs vanish for a moment; an operator had cordoned one of them."""
    quick = {"reconcile_interval_seconds": 0.1, "recovery_quiet_seconds": 0.5}
    async with scheduler(nats_url, postgres_dsn, **quick), world(nats_url) as steward:
        node = await steward.add_node("alpha", 2, interval_seconds=0.2)
        await steward.known("alpha", 2)
        hot = Cordon(
            command_id=new_id(),
            node_id="alpha",
            device_uuid="GPU-alpha-1",
            reason="hot",
            set_by="alice",
        )
        accepted(await steward.bus.request(hot))
        for revision, gpu in enumerate(node.gpus):
            await tell_loss(steward, node, gpu.uuid, HealthKind.GPU_LOST, 100 + revision)
        await eventually(lambda: len(steward.seen(DeviceCordoned)) > 1)
        lost = await _cordons(steward)
        for revision, gpu in enumerate(node.gpus):
            await tell_loss(steward, node, gpu.uuid, HealthKind.GPU_RECOVERED, 200 + revision)

        lifted = await steward.event(DeviceUncordoned)
        granted = await steward.granted(await steward.request())
        left = await _cordons(steward)

    assert (lifted.device_uuid, lifted.reason) == ("GPU-alpha-0", "well again for 0.5 s")
    assert granted.devices[0].uuid == "GPU-alpha-0"
    loss = lost["GPU-alpha-0"]
    assert (loss.cause, loss.reason) == (CordonCause.GPU_LOST, "gpu lost: it vanished")
    assert loss.since_at is not None
    assert loss.until == "it has been well for 0.5 s"
    assert lost.keys() == {"GPU-alpha-0", "GPU-alpha-1"}
    assert left.keys() == {"GPU-alpha-1"}
    assert left["GPU-alpha-1"] == lost["GPU-alpha-1"]
    assert (left["GPU-alpha-1"].set_by, left["GPU-alpha-1"].reason) == ("alice", "hot")


async def tell_loss(
    steward: World, node: FakeNode, uuid: str, change: HealthKind, revision: int
) -> None:
    detail = "it vanished" if change is HealthKind.GPU_LOST else ""
    await tell_xid(
        steward,
        node,
        change=change,
        device_uuid=uuid,
        revision=revision,
        xid=None,
        action=None,
        detail=detail,
    )


async def _cordons(steward: World) -> dict[str, CordonState]:
    seen = await steward.bus.query(GetAllocationMap(), AllocationMap)
    return {d.uuid: d.cordon for node in seen.nodes for d in node.devices if d.cordon is not None}


def _as_seen(event: HealthChanged) -> FaultSeen:
    return FaultSeen(
        event_id=event.message_id,
        occurred_at=event.occurred_at,
        change=event.change,
        action=event.action or HealthAction.IGNORE,
        xid=event.xid,
        detail=event.detail,
    )
