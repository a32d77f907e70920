"""MIG instances that are there, handed out as devices of their own."""

import pytest

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.devices import DeviceState
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import RequestReservation, ReservationState
from schemas.scheduler.views import AllocationMap, GetAllocationMap
from shared.ids import new_id
from shared.testing import eventually
from tests.support.worlds.scheduler import FakeGpu, World, accepted, refused

PARENT = FakeGpu(uuid="GPU-0", index=0, mig_enabled=True, utilization_percent=None)
WHOLE = FakeGpu(uuid="GPU-1", index=1)


def instance(number: int, profile: str) -> FakeGpu:
    """As drivers tell it: without utilization, with the processes on it."""
    return FakeGpu(
        uuid=f"MIG-{number}",
        index=number + 2,
        utilization_percent=None,
        memory_total_mb=10_000,
        processes=(),
        parent_uuid="GPU-0",
        mig_profile=profile,
    )


async def test_instance_is_granted_by_profile_to_one(
    steward: World,
) -> None:
    gpus = [PARENT, WHOLE, instance(0, "1g.10gb"), instance(1, "2g.20gb")]
    await steward.add_node("alpha", gpus)
    await steward.known("alpha", 4)

    small = await steward.granted(await steward.request(GpuRequest(mig_profile="1g.10gb")))
    whole = await steward.granted(await steward.request(GpuRequest()))
    waiting = await steward.request(GpuRequest(mig_profile="1g.10gb"))
    two = await steward.request(GpuRequest(gpus=2))

    assert [(d.uuid, d.mig_profile) for d in small.devices] == [("MIG-0", "1g.10gb")]
    assert [d.uuid for d in whole.devices] == ["GPU-1"]
    await steward.waiting(waiting, ReasonCode.HELD)

    async def is_rejected() -> bool:
        return (await steward.view(two)).state is ReservationState.REJECTED

    await eventually(is_rejected, what="a rejection: one GPU is whole")
    [node] = (await steward.bus.query(GetAllocationMap(), AllocationMap)).nodes
    shown = {
        device.uuid: (device.kind, device.mig_profile, device.state) for device in node.devices
    }
    assert shown["MIG-1"] == ("mig", "2g.20gb", DeviceState.FREE)
    assert shown["GPU-0"] == ("gpu", None, DeviceState.UNAVAILABLE)
    accepted(await steward.release(small))
    await steward.granted(waiting)


@pytest.mark.parametrize(("name", "value"), [("gpus", 2), ("shares", 0.5), ("nodes", 2)])
async def test_request_beside_mig_profile_is_refused(
    steward: World, name: str, value: float
) -> None:
    request = GpuRequest(mig_profile="1g.10gb", **{name: value})  # type: ignore[arg-type]

    answer = refused(
        await steward.bus.request(
            RequestReservation(command_id=new_id(), reservation_id=new_id(), request=request)
        )
    )

    assert answer.path == f"$.request.{name}"
    assert "mig_profile" in answer.message
