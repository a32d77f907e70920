"""nvidia-smi's CSV: what cannot be read is unknown, and hides nothing else."""

import inspect
import re

import pytest

from schemas.telemetry.readings import GpuProcess
from services.telemetry.sources.nvidia_smi import csv
from services.telemetry.sources.nvidia_smi.csv import (
    NEEDED_FIELDS,
    QUERY_FIELDS,
    bus_key,
    find_refused_field,
    lost_devices,
    parse_report,
    reports_no_devices,
    without,
)
from services.telemetry.sources.nvidia_smi.processes import parse_processes
from tests.support.fakes.nvidia_smi import GPU
from tests.support.tables import for_each

VALUES = {name: GPU[name] for name in QUERY_FIELDS}
OPTIONAL = [name for name in QUERY_FIELDS if name not in NEEDED_FIELDS]
UNREADABLE = ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "ERR!", "[GPU is lost]", ""]


def test_every_field_read_from_a_row_is_queried() -> None:
    names = re.findall(r'_field\(\s*row, "([^"]+)"', inspect.getsource(csv))

    assert set(names) - set(QUERY_FIELDS) == set()


def make_line(**changed: str) -> str:
    return ", ".join({**VALUES, **{k.replace("__", "."): v for k, v in changed.items()}}.values())


def make_line_with(field: str, text: str) -> str:
    return ", ".join({**VALUES, field: text}.values())


def test_every_field_is_read() -> None:
    (gpu,) = parse_report(make_line()).gpus

    reading = gpu.reading
    assert (reading.uuid, reading.index) == (VALUES["uuid"], 0)
    assert (reading.utilization_percent, reading.temperature_c) == (37, 61)
    memory = (reading.memory_total_mb, reading.memory_used_mb, reading.memory_free_mb)
    assert memory == (81559, 1024, 80035)
    assert (reading.performance_state, reading.fan_percent) == (0, None)
    assert reading.memory_utilization_percent == 21
    assert (reading.encoder_percent, reading.decoder_percent) == (0, 3)
    assert (reading.pcie_generation, reading.pcie_width) == (5, 16)
    assert (reading.retired_pages, reading.retired_pages_pending) == (3, False)
    assert (reading.remapped_rows_corrected, reading.remapped_rows_uncorrected) == (0, 1)
    assert (reading.remap_pending, reading.remap_failed) == (False, False)
    assert (reading.power_draw_w, reading.power_limit_w) == (412.37, 700)
    assert (reading.sm_clock_mhz, reading.memory_clock_mhz) == (1980, 2619)
    assert reading.throttle_reasons == ("sw_power_cap", "hw_thermal_slowdown")
    assert (reading.ecc_corrected, reading.ecc_uncorrected) == (2, 0)
    assert gpu.facts.name == reading.name == "NVIDIA H100 80GB HBM3"
    limits = (gpu.facts.power_limit_min_w, gpu.facts.power_limit_max_w)
    assert (gpu.facts.power_limit_default_w, *limits) == (700, 200, 700)
    assert (gpu.facts.pcie_generation_max, gpu.facts.pcie_width_max) == (5, 16)
    assert (gpu.facts.pci_bus_id, gpu.facts.serial) == ("00000000:18:00.0", "1652223001234")
    assert (gpu.facts.compute_capability, gpu.facts.mig_enabled) == ("9.0", False)
    assert gpu.driver_version == "550.54.15"


@pytest.mark.parametrize("text", UNREADABLE)
@for_each("field", OPTIONAL)
def test_unreadable_field_alone_is_unknown(field: str, text: str) -> None:
    spoilt, whole = parse_report(f"{make_line_with(field, text)}\n").gpus, parse_report(make_line())

    assert len(spoilt) == 1
    before, after = whole.gpus[0].reading, spoilt[0].reading
    changed = {
        name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)
    }
    assert all(getattr(after, name) is None for name in changed)
    assert len(changed) <= 1


@pytest.mark.parametrize("text", ["nan", "inf", "-5", "[GPU requires reset]", "twelve", "0x1G"])
@pytest.mark.parametrize("field", ["utilization.gpu", "memory.used", "power.draw", "clocks.sm"])
def test_a_value_that_makes_no_sense_is_unknown(field: str, text: str) -> None:
    (gpu,) = parse_report(make_line_with(field, text)).gpus

    whole = parse_report(make_line()).gpus[0].reading
    assert gpu.reading != whole
    assert gpu.reading.memory_total_mb == 81559


def test_a_zero_is_a_value_and_not_unknown() -> None:
    (gpu,) = parse_report(make_line(utilization__gpu="0", memory__used="0")).gpus

    assert gpu.reading.utilization_percent == 0
    assert gpu.reading.memory_used_mb == 0


@pytest.mark.parametrize(
    ("said", "want"),
    [
        *((word, True) for word in ("Yes", "1", "true", "Enabled")),
        *((word, False) for word in ("No", "0", "false", "Disabled")),
    ],
)
def test_a_claim_is_read_in_words_and_in_digits(said: str, want: bool) -> None:
    (gpu,) = parse_report(make_line(remapped_rows__pending=said)).gpus

    assert gpu.reading.remap_pending is want


def test_units_after_a_number_are_accepted() -> None:
    (gpu,) = parse_report(make_line(memory__used="70312 MiB", power__draw="412.37 W")).gpus

    assert (gpu.reading.memory_used_mb, gpu.reading.power_draw_w) == (70312, 412.37)


def test_a_broken_line_leaves_the_other_gpus() -> None:
    lost = "Unable to determine the device handle for GPU0: 0000:18:00.0: GPU is lost."
    output = "\n".join([lost, make_line(index="1", uuid="GPU-b"), "2, GPU-c, torn", "\x00\xff", ""])

    report = parse_report(output)

    assert [gpu.reading.uuid for gpu in report.gpus] == ["GPU-b"]
    assert report.problems == (lost, "2, GPU-c, torn", "\x00\xff")


@pytest.mark.parametrize("index", ["[N/A]", "-1", "zero"])
def test_line_without_gpu_is_a_problem(index: str) -> None:
    report = parse_report("\n".join([make_line(index=index), make_line(uuid="[Unknown Error]")]))

    assert report.gpus == ()
    assert len(report.problems) == 2


def test_gpus_are_ordered_by_index_and_named_once() -> None:
    lines = [make_line(index=i, uuid=f"GPU-{u}") for i, u in (("2", "c"), ("0", "a"), ("2", "c"))]

    assert [gpu.reading.uuid for gpu in parse_report("\n".join(lines)).gpus] == ["GPU-a", "GPU-c"]


@pytest.mark.parametrize("output", ["", "\n\n", "Failed to initialize NVML: Driver mismatch"])
def test_output_without_a_gpu_gives_none(output: str) -> None:
    assert parse_report(output).gpus == ()


def test_shorter_query_leaves_fields_unknown() -> None:
    fields = [name for name in QUERY_FIELDS if name != "power.draw"]
    line = ", ".join(VALUES[name] for name in fields)

    (gpu,) = parse_report(line, fields).gpus

    assert gpu.reading.power_draw_w is None
    assert gpu.reading.power_limit_w == 700


def test_field_refused_by_old_version_is_found() -> None:
    output = 'Field "mig.mode.current" is not a valid field to query.\n'

    assert find_refused_field(output) == "mig.mode.current"
    assert find_refused_field(make_line()) is None


def test_no_devices_is_told_from_a_failure() -> None:
    assert reports_no_devices("No devices were found\n")
    assert not reports_no_devices("NVIDIA-SMI has failed")


def test_newer_field_name_is_tried_first() -> None:
    older, newer = "clocks_throttle_reasons.active", "clocks_event_reasons.active"

    renamed = without(QUERY_FIELDS, older)
    line = ", ".join(VALUES[older if name == newer else name] for name in renamed)

    assert (newer in renamed, older in renamed, len(renamed)) == (True, False, len(QUERY_FIELDS))
    (gpu,) = parse_report(line, renamed).gpus
    assert gpu.reading.throttle_reasons == ("sw_power_cap", "hw_thermal_slowdown")
    assert newer not in without(renamed, newer)


def test_complaint_is_of_the_addressed_device() -> None:
    known = {bus_key("00000000:18:00.0"): "GPU-a", bus_key("00000000:3B:00.0"): "GPU-b"}
    line = "Unable to determine the device handle for GPU1: 0000:3b:00.0: GPU is lost."

    assert lost_devices([line, "no address", "0000:99:00.0: who?"], known) == {"GPU-b": line}


@pytest.mark.parametrize("domain", ["0002", "00000002"])
def test_address_behind_gpu_names_its_device(domain: str) -> None:
    """On hosts whose GPUs have PCI domains of their own."""
    known = {bus_key(f"0000000{n}:00:00.0"): f"GPU-{n}" for n in (1, 2, 3)}
    line = f"Unable to determine the device handle for GPU{domain}:00:00.0: Unknown Error"

    assert lost_devices([line], known) == {"GPU-2": line}


def test_a_gpu_that_is_only_warned_of_is_not_lost() -> None:
    known = {bus_key("00000000:18:00.0"): "GPU-a", bus_key("00000000:19:00.0"): "GPU-b"}
    lost = "Unable to determine the device handle for GPU 0000:18:00.0: GPU is lost."
    warning = "WARNING: infoROM is corrupted at gpu 0000:19:00.0"

    assert lost_devices([lost, warning], known) == {"GPU-a": lost}
    assert parse_processes(f"GPU-b, 1, 20000, /usr/bin/squatter\n{warning}\n") == {
        "GPU-b": (GpuProcess(1, "squatter", 20_000),)
    }


def test_processes_are_by_gpu_despite_commas() -> None:
    found = parse_processes(
        "GPU-a, 4711, 70312, /opt/a, b/python\nGPU-b, 12, [N/A], [Not Found]\nGPU-a, 9, 1, sh\n"
    )

    assert found == {
        "GPU-a": (GpuProcess(4711, "python", 70312), GpuProcess(9, "sh", 1)),
        "GPU-b": (GpuProcess(12),),
    }


@pytest.mark.parametrize("output", ["", "\n", "No running processes found\n"])
def test_no_processes_is_known_and_not_unknown(output: str) -> None:
    assert parse_processes(output) == {}


@pytest.mark.parametrize(
    "output", ["Failed to initialize NVML", "GPU-a, [N/A], 1, sh", "[N/A], 1, 1, sh", "GPU-a, 1"]
)
def test_possibly_short_process_list_is_unknown(output: str) -> None:
    assert parse_processes(f"GPU-a, 4711, 70312, sh\n{output}") is None
