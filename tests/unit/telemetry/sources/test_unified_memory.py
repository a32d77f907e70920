"""Memory of GPUs that share the host's."""

from pathlib import Path

import pytest

from schemas.telemetry.readings import DeviceFacts, GpuReading
from services.telemetry.sources.source import Inventory, NodeReading
from services.telemetry.sources.unified_memory import (
    HostMemory,
    inventory_with_host_memory,
    parse_meminfo,
    with_host_memory,
)

MEMINFO = "MemTotal:  131072000 kB\nMemFree: 1 kB\nMemAvailable:  102400000 kB\n"


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    path = tmp_path / "meminfo"
    path.write_text(MEMINFO)
    return path


def known(name: str) -> dict[str, DeviceFacts]:
    return {"GPU-a": DeviceFacts(uuid="GPU-a", index=0, name=name)}


@pytest.mark.parametrize("name", ["NVIDIA GB10", "Orin (nvgpu)", "NVIDIA Thor"])
def test_a_board_of_unified_memory_has_the_hosts(name: str, meminfo: Path) -> None:
    reading = NodeReading(gpus=(GpuReading(uuid="GPU-a", index=0),))

    (gpu,) = with_host_memory(reading, known(name), meminfo).gpus
    (facts,) = inventory_with_host_memory(
        Inventory(devices=tuple(known(name).values())), meminfo
    ).devices

    assert (gpu.memory_total_mb, gpu.memory_free_mb) == (128_000, 100_000)
    assert gpu.memory_used_mb == 28_000
    assert facts.memory_total_mb == 128_000


@pytest.mark.parametrize(
    ("name", "total_mb"),
    [
        pytest.param("NVIDIA H100", None, id="a board with memory of its own"),
        pytest.param("NVIDIA GB10", 120_000, id="one that tells its memory"),
    ],
)
def test_other_memory_stays_as_it_is(name: str, total_mb: int | None, meminfo: Path) -> None:
    reading = NodeReading(gpus=(GpuReading(uuid="GPU-a", index=0, memory_total_mb=total_mb),))

    assert with_host_memory(reading, known(name), meminfo) is reading


def test_unknown_host_memory_stays_unknown(tmp_path: Path) -> None:
    reading = NodeReading(gpus=(GpuReading(uuid="GPU-a", index=0),))
    inventory = Inventory(devices=tuple(known("NVIDIA GB10").values()))

    assert with_host_memory(reading, known("NVIDIA GB10"), tmp_path / "none") is reading
    assert inventory_with_host_memory(inventory, tmp_path / "none") is inventory
    assert parse_meminfo("MemTotal: 1024 kB") is None
    assert parse_meminfo(MEMINFO) == HostMemory(128_000, 100_000)
