"""A dcgm-exporter's page: units, instances, and XIDs that stay on it."""

from typing import Any

import pytest

from schemas.telemetry.readings import HealthKind
from services.telemetry.domain.xid import advice
from services.telemetry.sources.dcgm.page import DcgmPage, parse_page
from services.telemetry.sources.dcgm.sticky_xids import StickyXids
from shared.prometheus_text import Sample, samples
from tests.support.fakes.dcgm import BLANK, make_lines


def page(text: str) -> DcgmPage:
    return parse_page(samples(text))


def xid_page(xid: float, *more: str) -> DcgmPage:
    return page("\n".join([make_lines(0, "GPU-aaaa", DCGM_FI_DEV_XID_ERRORS=xid), *more]))


def xid_count(xid: int, number: int) -> str:
    return (
        f'DCGM_EXP_XID_ERRORS_COUNT{{gpu="0",UUID="GPU-aaaa",xid="{xid}",'
        f'window_size_in_ms="300000"}} {number}'
    )


@pytest.mark.parametrize("cause", ["SBE", "DBE"])
def test_retired_pages_need_both_causes(cause: str) -> None:
    known: dict[str, Any] = {f"DCGM_FI_DEV_RETIRED_{cause}": 2}

    found = page(make_lines(0, "GPU-aaaa", **known))

    assert found.readings[0].retired_pages is None


def test_fields_come_in_our_units() -> None:
    found = page(make_lines(0, "GPU-aaaa"))

    (reading,), (facts,) = found.readings, found.devices
    assert (reading.uuid, reading.index, reading.name) == ("GPU-aaaa", 0, "NVIDIA H100 80GB HBM3")
    memory = (reading.memory_total_mb, reading.memory_used_mb, reading.memory_free_mb)
    assert memory == (81559, 1024, 80035)
    assert (reading.power_draw_w, reading.energy_mj) == (412.375, 15347724978)
    assert (reading.utilization_percent, reading.memory_utilization_percent) == (37, 21)
    assert (reading.encoder_percent, reading.decoder_percent) == (0, 3)
    assert (reading.sm_clock_mhz, reading.memory_clock_mhz) == (1980, 2619)
    assert (reading.temperature_c, reading.remapped_rows_uncorrected) == (61, 1)
    assert reading.remap_failed is False
    assert found.driver_version == "550.54.15"
    assert (facts.pci_bus_id, facts.memory_total_mb) == ("00000000:18:00.0", 81559)
    assert (facts.mig_enabled, facts.simulated) == (None, False)


@pytest.mark.parametrize(
    ("labels", "uuids"),
    [
        ('gpu="3"', []),
        ('gpu="3",UUID=""', []),
        ('UUID="GPU-aaaa"', []),
        ('gpu="x",UUID="GPU-aaaa"', []),
        ('gpu="3",uuid="GPU-aaaa"', ["GPU-aaaa"]),
        (f'gpu="3",UUID="{"a" * 100}"', ["a" * 100]),
        (f'gpu="3",UUID="{"a" * 101}"', []),
    ],
)
def test_what_names_no_gpu_is_left_out(labels: str, uuids: list[str]) -> None:
    found = page(f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} 40")

    assert [reading.uuid for reading in found.readings] == uuids


def test_unexported_field_is_unknown() -> None:
    (reading,) = page('DCGM_FI_DEV_GPU_TEMP{gpu="3",UUID="GPU-aaaa"} 40').readings

    known = {name for name in reading.__struct_fields__ if getattr(reading, name) is not None}
    assert known == {"uuid", "index", "temperature_c"}


@pytest.mark.parametrize(
    "blank",
    [
        *(BLANK, float(BLANK), 2147483632, 2147483647, 140737488355328, 140737488355343),
        *(-1, "NaN", "+Inf", "x"),
    ],
)
def test_blank_numbers_are_unknown(blank: object) -> None:
    text = make_lines(0, "GPU-aaaa").replace("} 412.375", f"}} {blank}")

    (reading,) = page(text).readings

    assert reading.power_draw_w is None
    assert reading.temperature_c == 61


@pytest.mark.parametrize("value", [0, 2147483631, 2147483648, 140737488355327, 140737488355344])
def test_the_numbers_beside_them_are_values(value: float) -> None:
    (reading,) = page(make_lines(0, "GPU-aaaa").replace("} 412.375", f"}} {value}")).readings

    assert reading.power_draw_w == value


def test_engine_activity_replaces_utilization() -> None:
    (reading,) = page(make_lines(0, "GPU-aaaa", DCGM_FI_DEV_GPU_UTIL=None)).readings

    assert reading.utilization_percent == 41.23


def test_additional_exporter_fields_are_read() -> None:
    more: dict[str, float | None] = {
        "DCGM_FI_DEV_POWER_MGMT_LIMIT": 500,
        "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN": 200,
        "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX": 700,
        "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF": 650,
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 0x44,
        "DCGM_FI_DEV_RETIRED_SBE": 2,
        "DCGM_FI_DEV_RETIRED_DBE": 1,
        "DCGM_FI_DEV_RETIRED_PENDING": 1,
        "DCGM_FI_DEV_ROW_REMAP_PENDING": 1,
        "DCGM_FI_DEV_FB_TOTAL": 81559,
        "DCGM_FI_DEV_CUDA_COMPUTE_CAPABILITY": 9 << 16,
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 4,
        "DCGM_FI_DEV_PSTATE": 0,
    }
    found = page(make_lines(0, "GPU-aaaa", instance="", **more))

    (reading,), (facts,) = found.readings, found.devices
    assert reading.power_limit_w == 500
    limits = [facts.power_limit_min_w, facts.power_limit_max_w, facts.power_limit_default_w]
    assert limits == [200, 700, 650]
    assert reading.throttle_reasons == ("sw_power_cap", "hw_thermal_slowdown")
    assert reading.retired_pages == 3
    assert reading.retired_pages_pending is True
    assert reading.remap_pending is True
    assert (reading.ecc_corrected, reading.performance_state) == (4, 0)
    assert (facts.compute_capability, facts.memory_total_mb) == ("9.0", 81559)


def test_instances_are_devices_board_counts_once() -> None:
    text = (
        make_lines(1, "GPU-bbbb")
        + make_lines(0, "GPU-aaaa", instance="2g.20gb/5", DCGM_FI_DEV_FB_USED=100)
        + make_lines(0, "GPU-aaaa", instance="2g.20gb/3", DCGM_FI_DEV_FB_USED=200)
    )

    found = page(text)

    assert [facts.index for facts in found.devices] == [0, 1, 2, 3]
    assert [reading.uuid for reading in found.readings] == [
        "GPU-aaaa",
        "GPU-bbbb",
        "MIG-GPU-aaaa/3/0",
        "MIG-GPU-aaaa/5/0",
    ]
    board, _, third, fifth = found.readings
    assert (board.power_draw_w, third.power_draw_w, fifth.power_draw_w) == (412.375, None, None)
    assert (board.memory_used_mb, third.memory_used_mb, fifth.memory_used_mb) == (None, 200, 100)
    assert (board.utilization_percent, third.utilization_percent) == (None, 41.23)
    facts = found.devices[2]
    assert (facts.parent_uuid, facts.mig_profile, facts.gpu_instance_id) == (
        "GPU-aaaa",
        "2g.20gb",
        3,
    )
    assert [facts.mig_enabled for facts in found.devices] == [True, None, None, None]
    assert [each.name for each in found.readings] == [each.name for each in found.devices]
    gpu = "NVIDIA H100 80GB HBM3"
    assert [each.name for each in found.devices] == [gpu, gpu, *[f"{gpu} MIG 2g.20gb"] * 2]


def test_instances_are_numbered_after_gpus() -> None:
    instances = (
        make_lines(number, f"GPU-{number}", instance=f"2g.20gb/{instance}")
        for number, instance in ((0, 3), (0, 5), (2, 1))
    )

    found = page("".join(instances))

    indices = {facts.uuid: facts.index for facts in found.devices}
    assert indices == {
        "GPU-0": 0,
        "GPU-2": 2,
        "MIG-GPU-0/3/0": 3,
        "MIG-GPU-0/5/0": 4,
        "MIG-GPU-2/1/0": 5,
    }


def test_pods_that_share_a_gpu_do_not_make_it_two() -> None:
    shared = make_lines(0, "GPU-aaaa") + make_lines(0, "GPU-aaaa").replace('pod=""', 'pod="other"')

    assert page(shared).readings == page(make_lines(0, "GPU-aaaa")).readings


def test_labels_may_have_brackets_commas_and_quotes() -> None:
    line = r'a_b{x="1,}",y="say \"hi\"\n",z=""} 1.5e3 1700000000000'

    assert list(samples(f"# TYPE a_b gauge\n{line}\ntorn{{x=\n\nno_value 1 2 3\nplain 7")) == [
        Sample("a_b", {"x": "1,}", "y": 'say "hi"\n', "z": ""}, 1500.0),
        Sample("plain", {}, 7.0),
    ]


def test_xid_is_told_when_the_gauge_changes() -> None:
    xids = StickyXids()

    told = [xids.faults(xid_page(xid)) for xid in (0, 31, 31, 79, 0, 79)]

    assert [[fault.xid for fault in faults] for faults in told] == [[], [31], [], [79], [], [79]]
    (fault,) = told[3]
    assert (fault.device_uuid, fault.change) == ("GPU-aaaa", HealthKind.XID)
    assert (fault.action, fault.action_source) == (advice(79).action, advice(79).source)


def test_xid_before_the_first_read_is_not_new() -> None:
    xids = StickyXids()

    assert xids.faults(xid_page(79, xid_count(79, 4))) == []
    assert xids.faults(xid_page(79, xid_count(79, 4))) == []


def test_xid_of_later_device_needs_a_counter() -> None:
    before = page(make_lines(0, "GPU-bbbb"))
    gauge, counter = StickyXids(), StickyXids()
    gauge.faults(before)
    counter.faults(before)

    assert gauge.faults(xid_page(79)) == []
    assert [fault.xid for fault in counter.faults(xid_page(79, xid_count(79, 1)))] == [79]


def test_counted_xid_repeats_are_seen() -> None:
    xids = StickyXids()
    pages = [
        xid_page(0),
        xid_page(31, xid_count(31, 1)),
        xid_page(31, xid_count(31, 1)),
        xid_page(31, xid_count(31, 2)),
        xid_page(31),
        xid_page(31, xid_count(31, 1)),
    ]

    told = [len(xids.faults(found)) for found in pages]

    assert told == [0, 1, 0, 1, 0, 1]
