"""What AMD's tools write, in the shapes of several releases."""

from typing import Any

import pytest

from schemas.telemetry.readings import DeviceFacts, GpuProcess, GpuReading
from services.telemetry.sources.amd import amd_smi, rocm_smi
from services.telemetry.sources.amd.values import amount, clock_mhz, count, memory_mb
from tests.support.fakes.amd import LIST, METRIC, PROCESS, ROCM, STATIC, value


def facts() -> dict[int, DeviceFacts]:
    return {found.index: found for found in amd_smi.device_facts(LIST, STATIC)}


def read(metric: Any) -> tuple[GpuReading, ...]:
    return amd_smi.readings(metric, facts(), amd_smi.power_limits(STATIC))


def known(reading: GpuReading) -> set[str]:
    return {name for name in reading.__struct_fields__ if getattr(reading, name) is not None}


@pytest.mark.parametrize(
    ("written", "want"),
    [
        (45, 45),
        ("45", 45),
        ("45 W", 45),
        (value(45, "W"), 45),
        ({"value": "45", "unit": "W"}, 45),
        ("(1500Mhz)", 1500),
        ("N/A", None),
        ({"value": "N/A", "unit": "W"}, None),
        (None, None),
        (True, None),
        (-1, None),
        (float("nan"), None),
        ([1], None),
        ({}, None),
    ],
)
def test_a_measurement_is_read_however_it_is_written(written: Any, want: float | None) -> None:
    assert amount(written) == want
    assert count(written) == want


@pytest.mark.parametrize(
    ("size", "want"),
    [
        (value(196592, "MB"), 196592),
        (value(0, "MB"), 0),
        (value(-1, "MB"), None),
        (value(192, "GB"), 196608),
        (value(1 << 30, "B"), 1024),
        (value(2048, "KB"), 2),
        ("2048 MB", 2048),
        (1024, 1024),
        (value(1, "furlong"), None),
        ({"value": "2 GB", "unit": ""}, 2048),
        ({"value": "2 GB", "unit": 7}, 2048),
    ],
)
def test_a_size_is_mebibytes_whatever_its_unit(size: Any, want: int | None) -> None:
    assert memory_mb(size) == want


def test_every_field_that_is_there_is_read() -> None:
    first, second = read(METRIC)

    assert (first.uuid, first.index, second.index) == (LIST[0]["uuid"], 0, 1)
    assert (first.utilization_percent, first.memory_utilization_percent) == (73, 12)
    memory = (first.memory_total_mb, first.memory_used_mb, first.memory_free_mb)
    assert memory == (196592, 49148, 147444)
    assert (first.temperature_c, first.power_draw_w, first.power_limit_w) == (61, 142, 650)
    assert first.energy_mj == 1_234_500
    assert (first.sm_clock_mhz, first.memory_clock_mhz) == (2100, 1300)
    assert (first.ecc_corrected, first.ecc_uncorrected) == (4, 0)
    assert (first.pcie_generation, first.pcie_width) == (5, 16)
    assert (first.throttle_reasons, first.fan_percent) == ((), None)


def test_facts_come_from_both_documents() -> None:
    found = facts()[1]

    assert (found.name, found.pci_bus_id) == ("AMD Instinct MI300X", "0000:26:00.0")
    assert (found.serial, found.numa_node) == ("0x1ABC", 1)
    assert (found.memory_total_mb, found.power_limit_max_w) == (196592, 750)
    assert (found.pcie_generation_max, found.pcie_width_max) == (5, 16)
    assert amd_smi.driver_version(STATIC) == "6.10.5"


def test_wrapped_lists_and_bare_numbers_are_read() -> None:
    bare = {
        "gpu_data": [
            {
                "gpu": 1,
                "usage": {"gfx_activity": 50},
                "mem_usage": {"total_vram": 1000, "used_vram": 250},
                "temperature": {"edge": 40},
                "power": {"average_socket_power": 100, "throttle_status": "THROTTLED"},
                "clock": {"gfx": {"cur_clk": 1700}, "MEM": {"cur_clk": 900}},
                "ecc": {"correctable": 1, "uncorrectable": 2},
                "pcie": {"current_lanes": 8, "current_speed": 16},
            }
        ]
    }

    (reading,) = read(bare)

    memory = (reading.memory_total_mb, reading.memory_used_mb, reading.memory_free_mb)
    assert (reading.index, memory) == (1, (1000, 250, 750))
    assert (reading.utilization_percent, reading.temperature_c) == (50, 40)
    assert (reading.power_draw_w, reading.throttle_reasons) == (100, ("throttled",))
    assert (reading.sm_clock_mhz, reading.memory_clock_mhz) == (1700, 900)
    assert (reading.ecc_corrected, reading.ecc_uncorrected) == (1, 2)
    assert (reading.pcie_generation, reading.pcie_width) == (4, 8)


@pytest.mark.parametrize("section", ["N/A", {}, None, [], 7])
def test_a_section_that_is_not_available_is_unknown(section: Any) -> None:
    names = ("usage", "power", "clock", "temperature", "ecc", "pcie", "fan", "energy", "mem_usage")
    static_less = amd_smi.readings([{"gpu": 0, **dict.fromkeys(names, section)}], facts(), {})

    # The total is a fact of the device.
    assert known(static_less[0]) == {"uuid", "index", "name", "memory_total_mb"}


@pytest.mark.parametrize(
    "document", [None, 7, "N/A", [], {}, [7], [{"gpu": "N/A"}], {"gpu_data": 1}]
)
def test_a_document_of_another_shape_has_no_gpus(document: Any) -> None:
    assert amd_smi.readings(document, facts(), {}) == ()
    assert amd_smi.device_facts(document, document) == ()
    assert amd_smi.processes(document) is None
    assert rocm_smi.readings(document) == ()


def test_a_gpu_without_a_uuid_goes_by_its_address() -> None:
    (found,) = amd_smi.device_facts([{"gpu": 0, "bdf": "0000:05:00.0", "uuid": "N/A"}], [])

    assert (found.uuid, found.name) == ("0000:05:00.0", "unknown")


def test_processes_are_by_gpu_and_may_be_none() -> None:
    assert amd_smi.processes(PROCESS) == {0: (GpuProcess(0, "serve", 1024),), 1: ()}


@pytest.mark.parametrize(
    "item",
    [
        {"name": "serve", "pid": 7, "mem_usage": value(512, "MB")},
        {"process_info": {"name": "serve", "pid": "7", "vram_mem": value(512, "MB")}},
        {"process_info": {"name": "serve", "pid": 7, "mem_usage": 512 << 20}},
    ],
)
def test_a_process_is_read_in_each_release(item: Any) -> None:
    document = {"gpu_data": [{"gpu": 0, "process_list": [item]}]}

    assert amd_smi.processes(document) == {0: (GpuProcess(7, "serve", 512),)}


def test_rocm_smi_sentences_ignore_case() -> None:
    shouted = {"card0": {name.upper(): text for name, text in ROCM["card0"].items()}}
    (reading,), (found,) = rocm_smi.readings(ROCM), rocm_smi.devices(ROCM)

    assert rocm_smi.readings(shouted) == rocm_smi.readings(ROCM)
    assert (reading.uuid, reading.name) == ("GPU-0x1234567890abcdef", "Instinct MI210")
    memory = (reading.memory_total_mb, reading.memory_used_mb, reading.memory_free_mb)
    assert memory == (65520, 26208, 39312)
    assert (reading.utilization_percent, reading.temperature_c) == (62, 45)
    assert (reading.power_draw_w, reading.power_limit_w) == (120, 300)
    assert (reading.sm_clock_mhz, reading.memory_clock_mhz) == (1500, 1600)
    assert (reading.fan_percent, reading.energy_mj, reading.processes) == (None, None, None)
    assert (found.pci_bus_id, found.serial) == ("0000:03:00.0", "PCB01")
    assert found.memory_total_mb == reading.memory_total_mb
    assert rocm_smi.driver_version(ROCM) == "6.7.0"


def test_rocm_smi_takes_first_name_with_a_value() -> None:
    card = {"Temperature (Sensor edge) (C)": "N/A", "Temperature (Sensor junction) (C)": 50.5}

    (reading,) = rocm_smi.readings({"card0": card | {"GPU use (%)": 7}})

    assert (reading.temperature_c, reading.utilization_percent) == (50.5, 7)


def test_partitions_sharing_a_uuid_are_devices() -> None:
    """As releases before partition ids in uuids list an MI300X in two partitions."""
    listed = [
        {"gpu": 0, "bdf": "0000:05:00.0", "uuid": "12ff", "partition_id": 0},
        {"gpu": 1, "bdf": "0000:05:00.1", "uuid": "12ff", "partition_id": 1},
        {"gpu": 2, "bdf": "0000:06:00.0", "uuid": "34ff", "partition_id": 0},
    ]

    assert amd_smi.uuids_by_index(listed) == {0: "12ff-0", 1: "12ff-1", 2: "34ff"}
    assert amd_smi.uuids_by_index(listed[2:]) == {2: "34ff"}


def test_all_ones_are_no_clock() -> None:
    assert clock_mhz({"value": 65535, "unit": "MHz"}) is None
    assert clock_mhz({"value": 2100, "unit": "MHz"}) == 2100
    assert clock_mhz("N/A") is None


@pytest.mark.parametrize(
    ("listed", "want"),
    [
        pytest.param("N/A", None, id="unknown"),
        pytest.param([{"process_info": "N/A"}], None, id="unknown in its entry"),
        pytest.param("No running processes detected", {0: ()}, id="none"),
        pytest.param(
            [{"process_info": "No running processes detected"}], {0: ()}, id="none, listed"
        ),
        pytest.param([], {0: ()}, id="empty"),
    ],
)
def test_processes_that_are_not_told_are_not_none(listed: Any, want: Any) -> None:
    assert amd_smi.processes([{"gpu": 0, "process_list": listed}]) == want
