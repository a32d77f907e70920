"""What a real driver said once: an H100 under driver 580.159.04, idle and multiplying matrices.

Written by `tests/support/driver_recording.py`. Sources read it as they read that driver, and the
fake NVML that says `Not Supported` where it did leaves unknown what it left unknown.
"""

from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

from schemas.telemetry.readings import DeviceFacts, GpuReading
from services.telemetry.sources.nvidia_smi.csv import SmiGpu, parse_report
from services.telemetry.sources.nvidia_smi.processes import parse_processes
from services.telemetry.sources.nvidia_smi.topology import parse_topology
from services.telemetry.sources.nvml.source import NvmlSource
from services.telemetry.sources.simulated.fleet_file import parse_fleet
from services.telemetry.sources.simulated.recording import Replay, parse_recording
from services.telemetry.sources.simulated.simulation import Simulation
from services.telemetry.sources.source import Inventory
from tests.support.fakes.nvml import NOT_SUPPORTED, FakeNvml

RECORDED = Path(__file__).parent / "recorded" / "h100-driver-580"
UUID = "GPU-00000000-0000-0000-0000-000000000000"
STATES = ("idle", "busy")


class Taken(Struct, frozen=True):
    """What one source said."""

    inventory: Inventory
    gpus: tuple[GpuReading, ...]

    @property
    def facts(self) -> DeviceFacts:
        [device] = self.inventory.devices
        return device

    @property
    def reading(self) -> GpuReading:
        [gpu] = self.gpus
        return gpu


class Call(Struct, frozen=True):
    """One function of NVML and its arguments."""

    call: tuple[str | int, ...]
    error: str | None = None


def taken(state: str) -> dict[str, Taken]:
    text = (RECORDED / f"sources-{state}.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, Taken])


def queried(state: str) -> SmiGpu:
    report = parse_report((RECORDED / f"query-{state}.csv").read_text())
    assert report.problems == ()
    [gpu] = report.gpus
    return gpu


def known(reading: GpuReading) -> set[str]:
    return {name for name in reading.__struct_fields__ if getattr(reading, name) is not None}


def test_every_number_of_nvidia_smi_is_read() -> None:
    idle, busy = queried("idle"), queried("busy")

    assert (busy.facts.uuid, busy.facts.name) == (UUID, "NVIDIA H100 80GB HBM3")
    assert busy.driver_version == "580.159.04"
    assert (busy.reading.utilization_percent, idle.reading.utilization_percent) == (100.0, 0.0)
    assert (busy.reading.power_draw_w, idle.reading.power_draw_w) == (697.46, 71.73)
    assert (busy.reading.memory_used_mb, busy.reading.memory_total_mb) == (21491, 81559)
    assert busy.reading.temperature_c == 60.0
    assert (busy.reading.throttle_reasons, idle.reading.throttle_reasons) == (
        ("sw_power_cap",),
        ("gpu_idle",),
    )


@pytest.mark.parametrize("state", STATES)
def test_an_h100_has_no_fan_and_no_page_retirement(state: str) -> None:
    reading = queried(state).reading

    unknown = set(reading.__struct_fields__) - known(reading)
    assert {"fan_percent", "retired_pages", "retired_pages_pending"} <= unknown
    assert (reading.remapped_rows_corrected, reading.remap_pending) == (0, False)


def test_processes_and_the_table_of_links_are_read() -> None:
    processes = parse_processes((RECORDED / "processes-busy.csv").read_text())
    topology = parse_topology((RECORDED / "topology.txt").read_text(), {0: UUID})

    assert processes is not None
    [process] = processes[UUID]
    assert (process.name, process.memory_used_mb) == ("python3", 21482)
    assert parse_processes((RECORDED / "processes-idle.csv").read_text()) == {}
    assert (topology.links, topology.numa_nodes) == ((), {UUID: 0})


@pytest.mark.parametrize("state", STATES)
def test_nvml_and_nvidia_smi_say_the_same(state: str) -> None:
    nvml, smi = taken(state)["nvml"], taken(state)["nvidia-smi"]

    # A virtual machine's kernel knows no NUMA node of the GPU; nvidia-smi says the only one.
    assert msgspec.structs.replace(nvml.facts, numa_node=0) == smi.facts
    assert nvml.inventory.cuda_driver_version == smi.inventory.cuda_driver_version == "13.0"
    assert known(nvml.reading) - known(smi.reading) == {"energy_mj", "buffered"}
    assert known(smi.reading) <= known(nvml.reading)
    assert nvml.reading.memory_used_mb == pytest.approx(smi.reading.memory_used_mb, abs=1)
    assert nvml.reading.power_draw_w == pytest.approx(smi.reading.power_draw_w, rel=0.02)
    assert nvml.reading.processes == smi.reading.processes


async def test_fake_nvml_leaves_unknown_what_driver_did(tmp_path: Path) -> None:
    lines = (RECORDED / "calls-busy.jsonl").read_text().splitlines()
    calls = [msgspec.json.decode(line, type=Call) for line in lines]
    fake = FakeNvml(tmp_path, gpus=1)
    fake.state.sampling = 10
    for name in {str(each.call[0]) for each in calls if each.error is not None}:
        fake.rule(name, error=NOT_SUPPORTED)
    source = NvmlSource(deadline_seconds=20, open_deadline_seconds=45, environ=fake.environ)
    await source.open()
    try:
        await source.inventory()
        await source.read()
        reading = await source.read()
    finally:
        await source.close()

    assert known(reading.gpus[0]) == known(taken("busy")["nvml"].reading)


def test_a_simulated_fleet_replays_the_load() -> None:
    fleet = parse_fleet(
        f'devices = [{{ mother_uuid = "{UUID}", model_name = "H100", memory_size = "80G" }}]\n'
        '[replay]\nfile = "load.csv"\n'
    )
    assert fleet.replay is not None
    recorded = parse_recording((RECORDED / "load.csv").read_text().splitlines())
    simulation = Simulation(fleet, Replay(fleet.replay, recorded, fleet.devices))

    idle, busy = (simulation.read(seconds, frozenset()).gpus[0] for seconds in (2.0, 20.0))

    assert (idle.utilization_percent, idle.memory_used_mb) == (0.0, 0)
    assert (busy.utilization_percent, busy.memory_used_mb) == (100.0, 21490)
    assert (idle.power_draw_w, busy.power_draw_w) == pytest.approx((71.6, 699.0), abs=1)
