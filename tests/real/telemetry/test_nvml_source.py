"""NVML in its child process, over a fake library: values, errors, loss, and calls that hang."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
import uvloop

from schemas.errors import ErrorCode
from schemas.telemetry.readings import (
    Buffered,
    BufferedMetric,
    GpuLink,
    GpuProcess,
    HealthAction,
    HealthKind,
    LinkKind,
)
from services.telemetry.host.cgroup import container_of
from services.telemetry.sources.nvml.hung_gpus import HungGpuIsolation
from services.telemetry.sources.nvml.probe import RESCUE_SHARE
from services.telemetry.sources.nvml.source import NvmlSource
from services.telemetry.sources.source import (
    NodeReading,
    ProbeHungError,
    SourceAbsentError,
    SourceFailedError,
)
from shared.errors import RefusedError
from shared.ids import new_id
from shared.testing import eventually
from tests.support.fakes.nvml import (
    DRIVER_NOT_LOADED,
    MEBIBYTE,
    NO_PERMISSION,
    NOT_SUPPORTED,
    TOPOLOGY_SINGLE,
    UNKNOWN,
    FakeNvml,
    nvml_children,
)
from tests.support.idle_clock import STEP_SECONDS, Clock
from tests.support.paths import ROOT

GPU = "GPU-fa4e0000-0000-0000-0000-00000000000{}"


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path)


@asynccontextmanager
async def opened(
    fake: FakeNvml,
    *,
    deadline_seconds: float = 30.0,
    kernel_log: str = "/nowhere",
    isolation: HungGpuIsolation | None = None,
) -> AsyncIterator[NvmlSource]:
    source = NvmlSource(
        deadline_seconds=deadline_seconds,
        open_deadline_seconds=45,
        environ=fake.environ,
        kernel_log=kernel_log,
        isolation=isolation,
    )
    try:
        await source.open()
        await source.inventory()
        yield source
    finally:
        await source.close()


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
async def test_unreadable_field_hides_nothing_else(fake: FakeNvml, error: int) -> None:
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


async def test_lost_gpu_is_named_and_others_read(fake: FakeNvml) -> None:
    async with opened(fake) as source:
        fake.device(0).lost = 1
        reading = await source.read()

        assert list(reading.lost) == ["GPU-fa4e0000-0000-0000-0000-000000000000"]
        assert [gpu.index for gpu in reading.gpus] == [1]

        fake.device(0).lost = 0
        await source.inventory()
        assert [gpu.index for gpu in (await source.read()).gpus] == [0, 1]


async def test_process_has_memory_and_reservation(fake: FakeNvml) -> None:
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


async def test_foreign_process_is_only_a_number(fake: FakeNvml) -> None:
    beyond_any_pid = 1 << 22
    fake.run(0, beyond_any_pid + 1, 0)
    fake.device(0).processes[0].memory = (1 << 64) - 1
    async with opened(fake) as source:
        first = (await source.read()).gpus[0]

    assert first.processes == (GpuProcess(pid=beyond_any_pid + 1),)


async def test_no_library_or_device_is_absent(fake: FakeNvml) -> None:
    fake.state.count = 0
    source = NvmlSource(deadline_seconds=5, open_deadline_seconds=10, environ=fake.environ)
    with pytest.raises(SourceAbsentError):
        await source.open()
    await source.close()


async def test_unloaded_driver_is_a_failure(fake: FakeNvml) -> None:
    fake.state.init_error = DRIVER_NOT_LOADED
    source = NvmlSource(deadline_seconds=5, open_deadline_seconds=10, environ=fake.environ)
    with pytest.raises(SourceFailedError, match="NVML"):
        await source.open()
    await source.close()


async def test_hanging_call_ends_with_its_child(fake: FakeNvml, idle_clock: Clock) -> None:
    async with opened(fake, deadline_seconds=0.2) as source:
        fake.rule("nvmlDeviceGetPowerUsage", latency_seconds=30)
        began = idle_clock()
        with pytest.raises(ProbeHungError, match="no GPU answers"):
            await source.read()
        assert idle_clock() - began < 0.2 + STEP_SECONDS
        await source.close()

    assert nvml_children() == set()


async def test_dead_child_is_a_failure(fake: FakeNvml) -> None:
    async with opened(fake) as source:
        (pid,) = nvml_children()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SourceFailedError, match="probe ended"):
            await source.read()


async def test_the_child_ends_with_its_agent(fake: FakeNvml) -> None:
    """An agent that is killed has no chance to end the child, which may hang in the driver."""
    program = (
        "import asyncio, sys\n"
        "from services.telemetry.sources.nvml.source import NvmlSource\n"
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
        "PYTHONPATH": str(ROOT),
    }


async def test_every_further_value_is_read_in_its_unit(fake: FakeNvml) -> None:
    fake.link(0, 1)
    fake.device(0).remap_pending = 1
    async with opened(fake) as source:
        inventory = await source.inventory()
        (first, second) = (await source.read()).gpus

    facts = inventory.devices[0]
    assert (facts.serial, facts.numa_node) == ("165300000", 0)
    limits = (facts.power_limit_min_w, facts.power_limit_default_w, facts.power_limit_max_w)
    assert limits == (200.0, 700.0, 700.0)
    assert (facts.pcie_generation_max, facts.pcie_width_max) == (5, 16)
    assert (first.performance_state, first.fan_percent) == (0, 30)
    assert (first.memory_utilization_percent, first.encoder_percent, first.decoder_percent) == (
        *(17, 11, 12),
    )
    assert (first.pcie_generation, first.pcie_width) == (4, 8)
    assert (first.retired_pages, first.retired_pages_pending) == (3, False)
    assert (first.remapped_rows_corrected, first.remapped_rows_uncorrected) == (4, 1)
    assert (first.remap_pending, first.remap_failed) == (True, False)
    assert second.remap_pending is False
    assert first.nvlinks_up == (True, True)
    assert fake.state.throughput_calls == 0


async def test_links_tell_each_pair_once(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=3)
    fake.link(0, 1, count=4)
    fake.device(0).topology[2] = fake.device(2).topology[0] = TOPOLOGY_SINGLE
    async with opened(fake) as source:
        links = (await source.inventory()).links

    assert links == (
        GpuLink(
            first_uuid=GPU.format(0), second_uuid=GPU.format(1), kind=LinkKind.NVLINK, nvlinks=4
        ),
        GpuLink(first_uuid=GPU.format(0), second_uuid=GPU.format(2), kind=LinkKind.PIX),
        GpuLink(first_uuid=GPU.format(1), second_uuid=GPU.format(2), kind=LinkKind.SYS),
    )


async def test_driver_samples_are_told_once(fake: FakeNvml) -> None:
    fake.sampled(0, (1_000_000, 99, 600_000))
    async with opened(fake) as source:
        before = (await source.read()).gpus[0]
        fake.sampled(0, (2_000_000, 10, 100_000), (3_000_000, 90, 500_000))
        after = (await source.read()).gpus[0]
        again = (await source.read()).gpus[0]

    assert (before.buffered, again.buffered) == ((), ())
    assert after.buffered == (
        Buffered(BufferedMetric.UTILIZATION_PERCENT, 2, 10, 90, 50, 2_000_000, 3_000_000),
        Buffered(BufferedMetric.POWER_DRAW_W, 2, 100, 500, 300, 2_000_000, 3_000_000),
    )


async def test_mig_instances_are_devices_beside_their_gpu(fake: FakeNvml) -> None:
    fake.split(0, "3g.40gb", "1g.10gb")
    fake.run(0, os.getpid(), 300, instance=8)
    async with opened(fake) as source:
        devices = (await source.inventory()).devices
        readings = {gpu.uuid: gpu for gpu in (await source.read()).gpus}

        assert [(facts.mig_profile, facts.parent_uuid) for facts in devices] == [
            (None, None),
            (None, None),
            ("3g.40gb", GPU.format(0)),
            ("1g.10gb", GPU.format(0)),
        ]
        assert [facts.gpu_instance_id for facts in devices[2:]] == [7, 8]
        assert [facts.mig_enabled for facts in devices] == [True, False, None, None]
        first, second = (readings[facts.uuid] for facts in devices[2:])
        assert (first.memory_total_mb, first.memory_used_mb) == (40 * 1024, 1024)
        assert (first.utilization_percent, first.power_draw_w) == (None, None)
        assert first.processes == ()
        assert [process.memory_used_mb for process in second.processes or ()] == [300]

        fake.split(0, "7g.80gb")
        assert len((await source.read()).gpus) == 3
        assert [facts.mig_profile for facts in (await source.inventory()).devices][2:] == [
            "7g.80gb"
        ]


async def test_a_container_is_recognised_by_its_process(fake: FakeNvml) -> None:
    worker = await asyncio.create_subprocess_exec("sleep", "30")
    try:
        fake.run(0, worker.pid, 512, graphics=True)
        async with opened(fake) as source:
            (process,) = (await source.read()).gpus[0].processes or ()
    finally:
        worker.kill()
        await worker.wait()

    assert (process.name, process.container_id) == ("sleep", own_container())


async def test_hanging_gpu_costs_no_other_a_reading(fake: FakeNvml, idle_clock: Clock) -> None:
    async with opened(fake, deadline_seconds=0.4) as source:
        child = source.child_pid
        fake.rule("nvmlDeviceGetPowerUsage", device=0, latency_seconds=30)
        began = idle_clock()
        first = await source.read()
        noticed = idle_clock()
        later = [await source.read() for _ in range(40)]

        assert noticed - began < RESCUE_SHARE * 0.4 + STEP_SECONDS
        assert idle_clock() - noticed < STEP_SECONDS
        for reading in (first, *later):
            assert [gpu.index for gpu in reading.gpus] == [1]
            assert list(reading.hung) == [GPU.format(0)]
        assert (await source.inventory()).devices[0].uuid == GPU.format(0)

        fake.clear_rules()
        await read_until(source, lambda reading: len(reading.gpus) == 2 and not reading.hung)
        assert source.child_pid == child


async def test_hung_driver_is_left_with_its_culprit(
    fake: FakeNvml,
) -> None:
    """Its lock is held by the call for one GPU, so no thread of that process gets any further."""
    isolation = HungGpuIsolation(first_retry_seconds=0.2)
    fake.state.serial = 1
    fake.rule("nvmlDeviceGetPowerUsage", device=0, latency_seconds=30)
    with pytest.raises(ProbeHungError):
        async with opened(fake, deadline_seconds=0.3, isolation=isolation) as source:
            await source.read()

    async with opened(fake, deadline_seconds=1, isolation=isolation) as source:
        reading = await source.read()
        assert [gpu.index for gpu in reading.gpus] == [1]
        assert list(reading.hung) == [GPU.format(0)]

        fake.clear_rules()
        await read_until(source, lambda reading: len(reading.gpus) == 2 and not reading.hung)

    assert nvml_children() == set()


async def test_a_stopped_child_is_a_hung_probe(fake: FakeNvml) -> None:
    async with opened(fake, deadline_seconds=0.3) as source:
        assert source.child_pid is not None
        os.kill(source.child_pid, signal.SIGSTOP)
        with pytest.raises(ProbeHungError, match=r"within 0\.3 s"):
            await source.read()

    assert nvml_children() == set()


async def test_an_xid_is_told_once_whoever_tells_of_it(fake: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    os.mkfifo(log)
    async with opened(fake, kernel_log=str(log)) as source:
        with log.open("wb", buffering=0) as kernel:
            assert (await source.read()).faults == ()
            fake.xid(1, 79)
            (heard,) = (await source.read()).faults
            kernel.write(b"3,9,9,-;NVRM: Xid (PCI:FFF0:00:01): 79, GPU has fallen off the bus.\n")
            assert (await source.read()).faults == ()
            kernel.write(b"3,9,9,-;NVRM: Xid (PCI:FFF0:00:00): 31, pid=7, MMU Fault\n")
            (logged,) = (await source.read()).faults

    assert (heard.device_uuid, heard.xid) == (GPU.format(1), 79)
    assert (heard.change, heard.action) == (HealthKind.XID, HealthAction.DRAIN)
    assert (logged.device_uuid, logged.xid) == (GPU.format(0), 31)
    assert logged.action is HealthAction.RESTART_APPLICATION
    assert "pid=7" in logged.detail


async def test_nvlink_error_has_the_kernels_severity(fake: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    os.mkfifo(log)
    async with opened(fake, kernel_log=str(log)) as source:
        with log.open("wb", buffering=0) as kernel:
            await source.read()
            kernel.write(b"3,9,9,-;NVRM: Xid (PCI:FFF0:00:01): 145, RLW Nonfatal XC1 i0\n")
            fake.xid(1, 145)
            (fault,) = (await source.read()).faults

    assert (fault.xid, fault.action) == (145, HealthAction.IGNORE)


async def test_a_fatal_error_of_an_nvswitch_hits_every_gpu(fake: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    os.mkfifo(log)
    async with opened(fake, kernel_log=str(log)) as source:
        with log.open("wb", buffering=0) as kernel:
            await source.read()
            kernel.write(b"3,9,9,-;nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 20034, Fatal, Link\n")
            faults = (await source.read()).faults

    assert [fault.device_uuid for fault in faults] == [GPU.format(0), GPU.format(1)]
    assert {(f.change, f.action) for f in faults} == {(HealthKind.SXID, HealthAction.RESET)}


async def test_an_event_set_that_hangs_costs_no_reading(fake: FakeNvml, idle_clock: Clock) -> None:
    async with opened(fake, deadline_seconds=0.4) as source:
        fake.rule("nvmlEventSetWait_v2", latency_seconds=30)
        assert len((await source.read()).gpus) == 2
        assert len((await source.read()).gpus) == 2


async def test_clock_is_locked_within_range(fake: FakeNvml) -> None:
    async with opened(fake) as source:
        await source.inventory()
        await source.set_sm_clock(GPU.format(1), 1500)
        assert fake.device(1).locked_mhz == 1500
        with pytest.raises(RefusedError, match="345 to 1980 MHz") as beyond:
            await source.set_sm_clock(GPU.format(1), 2400)
        fake.rule("nvmlDeviceSetGpuLockedClocks", error=NO_PERMISSION)
        with pytest.raises(RefusedError) as denied:
            await source.set_sm_clock(GPU.format(1), 1200)
        fake.clear_rules()
        fake.rule("nvmlDeviceGetSupportedMemoryClocks", error=NOT_SUPPORTED)
        with pytest.raises(RefusedError) as lacking:
            await source.set_sm_clock(GPU.format(1), 1200)
        await source.set_sm_clock(GPU.format(1), None)

    assert beyond.value.details == {"minimum_mhz": 345, "maximum_mhz": 1980}
    assert [error.value.code for error in (beyond, denied, lacking)] == [
        ErrorCode.BAD_REQUEST,
        ErrorCode.FORBIDDEN,
        ErrorCode.UNSUPPORTED,
    ]
    assert (fake.device(0).locked_mhz, fake.device(1).locked_mhz) == (0, 0)


async def test_power_limit_is_set_within_gpu_range(fake: FakeNvml) -> None:
    async with opened(fake) as source:
        await source.inventory()
        assert await source.set_power_limit(GPU.format(1), 300) == 700
        assert fake.device(1).limit_mw == 300_000
        with pytest.raises(RefusedError, match="200 to 700 W") as beyond:
            await source.set_power_limit(GPU.format(1), 900)
        with pytest.raises(RefusedError) as unknown:
            await source.set_power_limit("GPU-none", 300)
        fake.rule("nvmlDeviceSetPowerManagementLimit", error=NO_PERMISSION)
        with pytest.raises(RefusedError) as denied:
            await source.set_power_limit(GPU.format(1), 250)
        fake.clear_rules()
        assert await source.set_power_limit(GPU.format(1), None) == 300

    assert beyond.value.details == {"minimum_w": 200, "maximum_w": 700}
    assert [error.value.code for error in (beyond, unknown, denied)] == [
        ErrorCode.BAD_REQUEST,
        ErrorCode.NOT_FOUND,
        ErrorCode.FORBIDDEN,
    ]
    assert fake.device(1).limit_mw == 700_000


def test_source_works_in_the_services_loop(fake: FakeNvml) -> None:
    async def read_and_hang() -> NodeReading:
        async with opened(fake, deadline_seconds=0.5) as source:
            fake.rule("nvmlDeviceGetPowerUsage", device=0, latency_seconds=30)
            return await source.read()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        reading = runner.run(read_and_hang())

    assert [gpu.index for gpu in reading.gpus] == [1]
    assert list(reading.hung) == [GPU.format(0)]


def own_container() -> str | None:
    """The container that the tests run in, if any."""
    return container_of(Path("/proc/self/cgroup").read_text())


async def read_until(source: NvmlSource, condition: Callable[[NodeReading], bool]) -> None:
    """Read every now and then until a reading is as wanted."""
    async with asyncio.timeout(40):
        while not condition(await source.read()):  # noqa: ASYNC110  # each look is a reading
            await asyncio.sleep(0.05)
