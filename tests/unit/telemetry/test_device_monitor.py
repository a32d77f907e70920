"""What is told about devices, from a made-up source that does what the test says."""

import pytest

from schemas.errors import ErrorCode
from schemas.telemetry.readings import DeviceFacts, HealthAction, HealthKind, HealthState
from services.telemetry.domain.faults import Fault
from services.telemetry.sources.source import NodeReading, ProbeHungError
from shared.errors import RefusedError
from tests.support.worlds.telemetry_node import GPU, OTHER, FakeSource, Node, reading_of


def make_fault(xid: int = 31, action: HealthAction = HealthAction.IGNORE) -> Fault:
    return Fault(
        device_uuid="GPU-0",
        change=HealthKind.XID,
        action=action,
        action_source="a catalogue",
        xid=xid,
        detail=f"XID {xid}",
    )


async def test_fault_is_an_event_with_advice() -> None:
    source = FakeSource()
    node = Node(source)
    await node.devices.read()
    source.reading = NodeReading(gpus=(reading_of(GPU), reading_of(OTHER)), faults=(make_fault(),))
    await node.devices.read()
    source.reading = None
    await node.devices.read()

    (told,) = await node.changes()
    assert (told.change, told.device_uuid, told.xid) == (HealthKind.XID, "GPU-0", 31)
    assert (told.action, told.action_source) == (HealthAction.IGNORE, "a catalogue")
    first, second = (await node.inventory()).devices
    assert [seen.event_id for seen in first.recent_faults] == [told.message_id]
    assert first.recent_faults[0].occurred_at == told.occurred_at
    assert second.recent_faults == ()
    assert first.health is HealthState.OK
    assert node.counters.xids == {("GPU-0", 31): 1}


async def test_newest_eight_faults_are_repeated() -> None:
    source = FakeSource()
    node = Node(source)
    for xid in range(20):
        source.reading = NodeReading(
            gpus=(reading_of(GPU), reading_of(OTHER)), faults=(make_fault(xid),)
        )
        await node.devices.read()

    found = (await node.inventory()).devices[0].recent_faults
    assert [seen.xid for seen in found] == list(range(12, 20))
    assert len(await node.changes()) == 20


async def test_hanging_device_takes_no_other_with_it() -> None:
    source = FakeSource()
    node = Node(source)
    await node.devices.read()
    source.reading = NodeReading(
        gpus=(reading_of(OTHER),), hung={"GPU-0": "nvmlDeviceGetPowerUsage"}
    )
    await node.devices.read()
    hung = await node.inventory()
    source.reading = None
    await node.devices.read()

    assert [device.health for device in hung.devices] == [HealthState.HUNG, HealthState.OK]
    assert [c.change for c in await node.changes()] == [
        HealthKind.PROBE_HUNG,
        HealthKind.PROBE_RECOVERED,
    ]
    assert {c.device_uuid for c in await node.changes()} == {"GPU-0"}
    assert (await node.inventory()).devices[0].health is HealthState.OK


async def test_divided_and_joined_gpu_loses_nothing() -> None:
    source = FakeSource(devices=(DeviceFacts(uuid="GPU-0", index=0, name="H100"),))
    node = Node(source)
    await node.devices.read()
    source.devices = (
        DeviceFacts(uuid="GPU-0", index=0, name="H100", mig_enabled=True),
        DeviceFacts(uuid="MIG-1", index=1, name="MIG", parent_uuid="GPU-0", mig_profile="1g.10gb"),
    )
    await node.devices.read()
    cut = await node.inventory()
    source.devices = source.devices[:1]
    await node.devices.read()

    assert [device.uuid for device in cut.devices] == ["GPU-0", "MIG-1"]
    assert [c.change for c in await node.changes()] == [HealthKind.MIG_CHANGED] * 2
    assert [device.uuid for device in (await node.inventory()).devices] == ["GPU-0"]


async def test_hanging_power_limit_is_a_hanging_driver() -> None:
    async def hang(uuid: str, watts: float | None) -> None:
        raise ProbeHungError(f"{uuid} to {watts} W did not return")

    source = FakeSource(on_limit=hang)
    node = Node(source)
    await node.devices.read()

    with pytest.raises(RefusedError) as refused:
        await node.devices.set_power_limit("GPU-0", 300.0)

    assert refused.value.code is ErrorCode.UNAVAILABLE
    assert source.closed == 1
    assert [c.change for c in await node.changes()] == [HealthKind.PROBE_HUNG]
    assert {d.health for d in (await node.inventory()).devices} == {HealthState.HUNG}
