"""Inputs that people of this trade met: what tools answered, read by the sources as they are."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from schemas.telemetry.readings import GpuReading
from services.telemetry.sources.amd import amd_smi
from services.telemetry.sources.dcgm.page import parse_page
from services.telemetry.sources.nvidia_smi.source import NvidiaSmiSource
from services.telemetry.sources.source import NodeReading
from shared.prometheus_text import samples
from tests.support.fakes.nvidia_smi import FakeSmi, make_gpu

UUID = "GPU-00000000-0000-4000-8000-00000000000{}"


@pytest.fixture(scope="module")
def cases() -> Path:
    if (folder := os.environ.get("GPUSTEWARD_TEST_DATA")) is None:
        pytest.skip("needs recorded cases: set GPUSTEWARD_TEST_DATA to their folder")
    return Path(folder) / "cases"


def answer(smi: FakeSmi, case: Path) -> None:
    told: dict[str, Any] = json.loads(case.read_text())
    gpus = [
        {
            **make_gpu(number),
            "lost": "",
            **{name.replace("_lost", "lost"): value for name, value in gpu.items()},
        }
        for number, gpu in enumerate(told["gpus"])
    ]
    lines = {
        name: "".join(f"{line}\n" for line in told.get(name, [])) for name in ("tail", "processes")
    }
    exit_code = told.get("exit", 0)
    smi.answer(
        gpus,
        processes=lines["processes"] + lines["tail"],
        exit_code=exit_code,
        tail=lines["tail"],
        ends_with=exit_code,
    )


async def read(directory: Path, *answers: Path) -> NodeReading:
    """The reading after the last answer; the first one is what the source has begun with."""
    smi = FakeSmi(directory)
    answer(smi, answers[0])
    source = NvidiaSmiSource(smi.path, deadline_seconds=30)
    await source.open()
    await source.inventory()
    answer(smi, answers[-1])
    return await source.read()


def by_number(reading: NodeReading) -> dict[str, GpuReading]:
    return {gpu.uuid[-1]: gpu for gpu in reading.gpus}


async def test_unified_memory_is_the_hosts(cases: Path, tmp_path: Path) -> None:
    reading = await read(tmp_path, cases / "a01-gb10-smi.json")

    (gpu,) = reading.gpus
    assert (gpu.memory_total_mb, gpu.utilization_percent) == (None, 0.0)
    assert gpu.processes is not None
    assert [process.name for process in gpu.processes] == ["gnome-shell"]


async def test_a_warning_hides_no_foreign_process(cases: Path, tmp_path: Path) -> None:
    reading = await read(tmp_path, cases / "a03-inforom-smi.json")

    gpus = by_number(reading)
    assert sorted(gpus) == ["1", "2"]
    assert reading.lost == {}
    assert [process.pid for process in gpus["1"].processes or ()] == [1]
    assert gpus["2"].processes == ()


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ("a04-before-smi.json", "a04-lost-domain-smi.json", "2"),
        ("a08-before-smi.json", "a08-inforom-and-lost-smi.json", "1"),
    ],
)
async def test_one_lost_gpu_takes_no_other_with_it(
    cases: Path, tmp_path: Path, before: str, after: str, lost: str
) -> None:
    reading = await read(tmp_path, cases / before, cases / after)

    assert list(reading.lost) == [UUID.format(lost)]
    assert sorted(by_number(reading)) == sorted({"1", "2", "3"} - {lost})


async def test_vgpus_missing_fields_are_unknown(cases: Path, tmp_path: Path) -> None:
    (gpu,) = (await read(tmp_path, cases / "a06-vgpu-mig-guest-smi.json")).gpus

    assert (gpu.utilization_percent, gpu.temperature_c, gpu.power_draw_w) == (None, None, None)
    assert (gpu.memory_total_mb, gpu.memory_used_mb) == (24_576, 0)


def amd(case: Path) -> tuple[GpuReading, ...]:
    told = json.loads(case.read_text())
    facts = {each.index: each for each in amd_smi.device_facts(told["list"], told["static"])}
    return amd_smi.readings(told["metric"], facts, {})


def test_65535_mhz_is_no_clock_and_na_no_usage(cases: Path) -> None:
    (gpu,) = amd(cases / "b01-amd-apu.json")

    assert (gpu.sm_clock_mhz, gpu.memory_clock_mhz, gpu.utilization_percent) == (None, None, None)
    assert (gpu.memory_used_mb, gpu.temperature_c) == (300, 35.0)
    told = json.loads((cases / "b01-amd-apu.json").read_text())
    assert amd_smi.processes(told["process"]) is None


def test_two_partitions_of_one_uuid_are_two_devices(cases: Path) -> None:
    first, second = amd(cases / "b02-amd-dpx.json")

    assert first.uuid != second.uuid
    assert (first.memory_used_mb, second.memory_used_mb) == (290, 80_000)
    assert (first.utilization_percent, second.utilization_percent) == (5.0, None)


def test_instances_without_memory_hurt_no_other(cases: Path) -> None:
    page = parse_page(samples((cases / "c02-dcgm-mig-no-fb.prom").read_text()))

    memory = {gpu.uuid: gpu.memory_used_mb for gpu in page.readings}
    assert memory.pop("GPU-cc") == 10
    assert set(memory.values()) == {None}


def test_values_that_come_as_labels_stay_unknown(cases: Path) -> None:
    page = parse_page(samples((cases / "c03-dcgm-values-as-labels.prom").read_text()))

    (gpu,) = page.readings
    assert (gpu.uuid, gpu.sm_clock_mhz) == ("GPU-dd", 2040)
    assert (gpu.memory_used_mb, gpu.utilization_percent) == (None, None)
