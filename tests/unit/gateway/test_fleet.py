"""Readings, inventory and ledger joined."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from schemas.gateway.views import GpuView
from schemas.scheduler.devices import DeviceState
from schemas.scheduler.reasons import Reason, ReasonCode
from schemas.scheduler.views import AllocationMap, DeviceAllocation, DeviceHolder, NodeAllocation
from schemas.telemetry.readings import (
    DeviceFacts,
    DriverInteger,
    GpuReading,
    GpuSampled,
    HealthState,
    HostFacts,
    InventoryReported,
    Source,
)
from services.gateway.domain.fleet import LatestSample, allocation_shares, gpu_views, node_views
from shared.gpu.share_units import SHARES_PER_GPU_LABEL

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_heard(
    *gpus: GpuReading, age_seconds: float = 0.5, source: Source = Source.NVML
) -> LatestSample:
    sample = GpuSampled(
        node_id="a",
        boot_id=UUID(int=1),
        sequence=1,
        observed_at=NOW,
        interval_seconds=1.0,
        source=source,
        gpus=gpus,
    )
    return LatestSample(sample=sample, age_seconds=age_seconds)


def make_allocation(uuid: str, index: int, **overrides: Any) -> DeviceAllocation:
    fields: dict[str, Any] = {
        "node_id": "a",
        "uuid": uuid,
        "index": index,
        "name": "A100",
        "state": DeviceState.FREE,
        "allocated": 0.0,
        "health": HealthState.OK,
        "simulated": False,
    }
    return DeviceAllocation(**{**fields, **overrides})


def make_ledger(*devices: DeviceAllocation) -> AllocationMap:
    node = NodeAllocation(node_id="a", source=Source.NVML, fresh=True, devices=devices)
    return AllocationMap(nodes=(node,))


def make_inventory(*devices: DeviceFacts) -> InventoryReported:
    return InventoryReported(
        message_id=UUID(int=2),
        occurred_at=NOW,
        revision=1,
        node_id="a",
        boot_id=UUID(int=1),
        source=Source.NVML,
        interval_seconds=1.0,
        host=HostFacts(hostname="a"),
        devices=devices,
    )


# `GET /nodes/{node_id}/gpus/{index}` has them.
ONLY_IN_DETAIL = {
    *("buffered", "nvlinks_up", "pod_uses", "retired_pages", "retired_pages_pending"),
    *("remapped_rows_corrected", "remapped_rows_uncorrected"),
}


def test_every_field_of_a_reading_is_in_the_view() -> None:
    shared_fields = set(GpuReading.__struct_fields__) & set(GpuView.__struct_fields__)
    numbers = [
        field
        for field in msgspec.structs.fields(GpuReading)
        if field.name in shared_fields and field.type in {float | None, DriverInteger | None}
    ]
    values: dict[str, Any] = {field.name: number for number, field in enumerate(numbers, start=1)}

    (view,) = gpu_views({"a": make_heard(GpuReading(uuid="g", index=0, **values))}, {}, None)

    assert {name: getattr(view, name) for name in values} == values
    assert set(GpuReading.__struct_fields__) - shared_fields == ONLY_IN_DETAIL


def test_agent_reading_reaches_view_unknown_stays() -> None:
    gpu = GpuReading(
        uuid="g",
        index=0,
        utilization_percent=50,
        memory_total_mb=100,
        memory_free_mb=50,
        fan_percent=0.0,
        throttle_reasons=("sw_power_cap",),
    )
    facts = DeviceFacts(uuid="g", index=0, name="A100", power_limit_max_w=400.0)

    (view,) = gpu_views({"a": make_heard(gpu)}, {"a": make_inventory(facts)}, None)

    assert view.availability_score == pytest.approx(0.5)
    assert (view.fan_percent, view.throttle_reasons) == (0.0, ("sw_power_cap",))
    assert (view.power_limit_max_w, view.power_limit_min_w) == (400.0, None)
    assert (view.decoder_percent, view.health_detail) == (None, None)


def test_a_device_is_shown_whoever_knows_of_it() -> None:
    views = gpu_views(
        {"a": make_heard(GpuReading(uuid="read", index=0, utilization_percent=5.0))},
        {"a": make_inventory(DeviceFacts(uuid="listed", index=1, name="H100"))},
        make_ledger(make_allocation("held", 2, state=DeviceState.HELD, allocated=1.0)),
    )

    assert [(view.uuid, view.index, view.fresh, view.state) for view in views] == [
        ("read", 0, True, None),
        ("listed", 1, False, None),
        ("held", 2, False, DeviceState.HELD),
    ]
    assert [view.name for view in views] == ["unknown", "H100", "A100"]
    assert views[0].utilization_percent == 5.0
    assert views[1].utilization_percent is None


def test_reading_keeps_its_own_number() -> None:
    (view,) = gpu_views(
        {"a": make_heard(GpuReading(uuid="g", index=3))},
        {"a": make_inventory(DeviceFacts(uuid="g", index=1, name="H100", memory_total_mb=80))},
        None,
    )

    assert (view.index, view.name, view.memory_total_mb) == (3, "H100", 80)


def test_node_counts_ungrantable_gpus_by_reason() -> None:
    hung = Reason(code=ReasonCode.UNHEALTHY, message="is hung")
    unwell = {"state": DeviceState.UNAVAILABLE, "health": HealthState.HUNG, "reasons": (hung,)}
    ledger = make_ledger(*(make_allocation(f"g{i}", i, **unwell) for i in range(2)))

    (node,) = node_views({}, {}, {}, ledger, NOW)

    assert (node.gpus_total, node.gpus_free) == (2, 0)
    assert node.reasons == {ReasonCode.UNHEALTHY: 2}


def test_agent_health_beats_ledger_health() -> None:
    lost = DeviceFacts(uuid="g", index=0, name="A100", health=HealthState.LOST)

    (view,) = gpu_views({}, {"a": make_inventory(lost)}, make_ledger(make_allocation("g", 0)))

    assert view.health is HealthState.LOST


@pytest.mark.parametrize(("age_seconds", "stale"), [(2.9, False), (3.1, True)])
def test_a_reading_is_stale_after_three_intervals(age_seconds: float, stale: bool) -> None:
    latest = {"a": make_heard(GpuReading(uuid="g", index=0), age_seconds=age_seconds)}

    (view,) = gpu_views(latest, {}, None)
    (node,) = node_views(latest, {}, {}, None, NOW)

    assert (view.fresh, node.fresh) == (not stale, not stale)


def test_what_is_simulated_says_so_everywhere() -> None:
    latest = {"a": make_heard(GpuReading(uuid="g", index=0), source=Source.SIMULATED)}

    assert gpu_views(latest, {}, None)[0].simulated
    assert node_views(latest, {}, {}, None, NOW)[0].simulated
    assert gpu_views({}, {}, make_ledger(make_allocation("g", 0, simulated=True)))[0].simulated
    assert node_views({"a": make_heard(source=Source.SIMULATED)}, {}, {}, None, NOW)[0].simulated
    assert not node_views({"a": make_heard()}, {}, {}, None, NOW)[0].simulated


def test_a_shared_gpu_tells_all_its_holders() -> None:
    holders = tuple(DeviceHolder(reservation_id=UUID(int=n), shares=0.5 / n) for n in (1, 2))

    (view,) = gpu_views({}, {}, make_ledger(make_allocation("g", 0, holders=holders)))

    assert view.holders == holders


def test_shares_are_told_with_two_digits() -> None:
    devices = (make_allocation("x", 0, allocated=0.6), make_allocation("y", 1, allocated=1.0))
    node = NodeAllocation(node_id="a", source=Source.NVML, fresh=True, devices=devices)

    of_file = replace(node, labels={SHARES_PER_GPU_LABEL: "2.00,1.50"})

    assert allocation_shares([node]) == {"x": "0.60", "y": "1.00"}
    assert allocation_shares([of_file]) == {"x": "1.20", "y": "1.50"}


@pytest.mark.parametrize(("seconds", "is_fresh"), [(80, True), (100, False)])
def test_node_without_gpus_lives_while_it_reports(seconds: int, is_fresh: bool) -> None:
    inventory = replace(make_inventory(), source=Source.NONE)

    (node,) = node_views({}, {"a": inventory}, {}, None, NOW + timedelta(seconds=seconds))

    assert node.fresh is is_fresh
