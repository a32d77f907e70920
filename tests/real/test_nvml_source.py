"""NVML in its child process, over a fake library: values, errors, loss, and calls that hang."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from schemas.telemetry import GpuProcess
from services.telemetry.nvml import NvmlSource
from services.telemetry.ports import ProbeHungError, SourceAbsentError, SourceFailedError
from shared.ids import new_id
from shared.testing import eventually
from tests.fake_nvml import DRIVER_NOT_LOADED, MEBIBYTE, NOT_SUPPORTED, UNKNOWN, FakeNvml


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path)


@asynccontextmanager
async def opened(fake: FakeNvml, *, deadline_seconds: float = 5.0) -> AsyncIterator[NvmlSource]:
    source = NvmlSource(
        deadline_seconds=deadline_seconds, open_deadline_seconds=10, environ=fake.environ
    )
    try:
        await source.open()
        await source.inventory()
        yield source
    finally:
        await source.close()


def children() -> set[int]:
    """NVML children of this process that are alive."""
    return {
        child.pid
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE
        and any("nvml_child" in word for word in child.cmdline())
    }


async def test_every_value_is_read_in_its_unit(fake: FakeNvml) -> None:
    async with opened(fake) as source:
        inventory = await source.inventory()
        (first, second) = (await source.read()).gpus

    facts = inventory.devices[0]
    assert inventory.driver_version == "580.00-fake"
    assert inventory.cuda_driver_version == "13.1"
    assert (facts.pci_bus_id, facts.compute_capability) == ("0000FFF0:00:00.0", "9.0")
    assert facts.mig_enabled is False
    assert first.utilization_percent == 42
    assert (first.memory_total_mb, first.memory_used_mb, first.memory_free_mb) == (
        81559,
        1024,
        80035,
    )
    assert (first.temperature_c, first.power_draw_w, first.power_limit_w) == (55, 123.456, 700)
    assert (first.energy_mj, first.sm_clock_mhz, first.memory_clock_mhz) == (
        987_654_321,
        1980,
        2619,
    )
    assert first.throttle_reasons == ("gpu_idle", "sw_power_cap")
    assert (first.ecc_corrected, first.ecc_uncorrected) == (3, 1)
    assert first.processes == ()
    assert (second.index, second.name) == (1, "Fake H100")


async def test_a_changed_value_shows_in_the_next_reading(fake: FakeNvml) -> None:
    async with opened(fake) as source:
        await source.read()
        fake.device(1).used = 70_000 * MEBIBYTE
        reading = await source.read()

    assert [gpu.memory_used_mb for gpu in reading.gpus] == [1024, 70_000]


@pytest.mark.parametrize("error", [NOT_SUPPORTED, UNKNOWN])
async def test_a_field_that_cannot_be_read_is_unknown_and_hides_nothing_else(
    fake: FakeNvml, error: int
) -> None:
    fake.rule("nvmlDeviceGetUtilizationRates", device=0, error=error)
    async with opened(fake) as source:
        (first, second) = (await source.read()).gpus

    assert first.utilization_percent is None
    assert (first.memory_used_mb, first.power_draw_w) == (1024, 123.456)
    assert second.utilization_percent == 42


async def test_a_gpu_with_mig_enabled_is_still_read(fake: FakeNvml) -> None:
    fake.device(0).mig = 1
    fake.rule("nvmlDeviceGetUtilizationRates", device=0, error=NOT_SUPPORTED)
    fake.rule("nvmlDeviceGetComputeRunningProcesses_v3", device=0, error=NOT_SUPPORTED)
    async with opened(fake) as source:
        inventory = await source.inventory()
        first = (await source.read()).gpus[0]

    assert [facts.mig_enabled for facts in inventory.devices] == [True, False]
    assert (first.utilization_percent, first.processes) == (None, None)
    assert first.memory_total_mb == 81559


async def test_a_lost_gpu_is_named_and_the_other_still_read(fake: FakeNvml) -> None:
    async with opened(fake) as source:
        fake.device(0).lost = 1
        reading = await source.read()

        assert list(reading.lost) == ["GPU-fa4e0000-0000-0000-0000-000000000000"]
        assert [gpu.index for gpu in reading.gpus] == [1]

        fake.device(0).lost = 0
        await source.inventory()
        assert [gpu.index for gpu in (await source.read()).gpus] == [0, 1]


async def test_a_process_is_known_with_its_memory_and_reservation(fake: FakeNvml) -> None:
    reservation_id = new_id()
    worker = await asyncio.create_subprocess_exec(
        "sleep", "30", env={**os.environ, "GPUSTEWARD_RESERVATION": str(reservation_id)}
    )
    try:
        fake.run(0, worker.pid, 512)
        async with opened(fake) as source:
            first = (await source.read()).gpus[0]
    finally:
        worker.kill()
        await worker.wait()

    assert first.processes == (
        GpuProcess(pid=worker.pid, name="sleep", memory_used_mb=512, reservation_id=reservation_id),
    )


async def test_a_process_that_nobody_can_look_at_is_only_a_number(fake: FakeNvml) -> None:
    beyond_any_pid = 1 << 22
    fake.run(0, beyond_any_pid + 1, 0)
    fake.device(0).processes[0].memory = (1 << 64) - 1
    async with opened(fake) as source:
        first = (await source.read()).gpus[0]

    assert first.processes == (GpuProcess(pid=beyond_any_pid + 1),)


async def test_without_a_library_or_a_device_the_source_is_absent(fake: FakeNvml) -> None:
    fake.state.count = 0
    source = NvmlSource(deadline_seconds=5, open_deadline_seconds=10, environ=fake.environ)
    with pytest.raises(SourceAbsentError):
        await source.open()
    await source.close()


async def test_a_driver_that_is_not_loaded_is_a_failure_and_not_an_absence(fake: FakeNvml) -> None:
    fake.state.init_error = DRIVER_NOT_LOADED
    source = NvmlSource(deadline_seconds=5, open_deadline_seconds=10, environ=fake.environ)
    with pytest.raises(SourceFailedError, match="NVML"):
        await source.open()
    await source.close()


async def test_a_hanging_call_ends_at_its_deadline_and_the_child_is_gone(fake: FakeNvml) -> None:
    async with opened(fake, deadline_seconds=0.2) as source:
        fake.rule("nvmlDeviceGetPowerUsage", latency_seconds=30)
        began = time.monotonic()
        with pytest.raises(ProbeHungError, match="no GPU answers"):
            await source.read()
        assert time.monotonic() - began < 2
        await source.close()

    assert children() == set()


async def test_a_child_that_dies_is_a_failure_of_the_source(fake: FakeNvml) -> None:
    async with opened(fake) as source:
        (pid,) = children()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SourceFailedError, match="probe ended"):
            await source.read()


async def test_the_child_ends_with_its_agent(fake: FakeNvml) -> None:
    """An agent that is killed has no chance to end the child, which may hang in the driver."""
    program = (
        "import asyncio, sys\n"
        "from services.telemetry.nvml import NvmlSource\n"
        "async def main():\n"
        "    source = NvmlSource(deadline_seconds=60, open_deadline_seconds=60)\n"
        "    await source.open()\n"
        "    print(source.child_pid, flush=True)\n"
        "    await source.inventory()\n"
        "asyncio.run(main())\n"
    )
    fake.rule("nvmlDeviceGetName", latency_seconds=60)
    agent = await asyncio.create_subprocess_exec(
        "python3", "-c", program, stdout=asyncio.subprocess.PIPE, env=_with_python(fake.environ)
    )
    assert agent.stdout is not None
    child = psutil.Process(int(await agent.stdout.readline()))
    agent.kill()
    await agent.wait()

    await eventually(
        lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE,
        what="the end of the child",
    )


def _with_python(environ: dict[str, str]) -> dict[str, str]:
    return {
        **environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
