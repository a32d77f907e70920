"""What every source of GPU readings keeps, whatever it reads from."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil
import pytest

from schemas.errors import ErrorCode
from schemas.telemetry.readings import GpuReading, GpuSampled, Source
from services.telemetry.domain.holdings import Holdings
from services.telemetry.sources.amd.source import AmdSource
from services.telemetry.sources.dcgm.source import DcgmSource
from services.telemetry.sources.dcgm.sticky_xids import StickyXids
from services.telemetry.sources.no_gpu import NoSource
from services.telemetry.sources.nvidia_smi.source import NvidiaSmiSource
from services.telemetry.sources.nvml.source import NvmlSource
from services.telemetry.sources.selection import DEFAULT_FLEET
from services.telemetry.sources.simulated.fault_script import FaultKind, ScriptedFault
from services.telemetry.sources.simulated.fleet_file import parse_fleet
from services.telemetry.sources.simulated.simulation import Simulation
from services.telemetry.sources.simulated.source import SimulatedSource
from services.telemetry.sources.source import GpuSource, ProbeHungError, SourceFailedError
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.ids import new_id
from shared.messaging.codec import encode
from tests.support.fakes.amd import METRIC, ROCM, FakeAmd
from tests.support.fakes.dcgm import FakeDcgm, make_lines
from tests.support.fakes.nvidia_smi import FakeSmi, make_gpu
from tests.support.fakes.nvml import NOT_SUPPORTED, FakeNvml
from tests.support.host_driver import HostDriver, find_host_driver, require_host_driver
from tests.support.idle_clock import STEP_SECONDS, Clock

DEADLINE_SECONDS = 0.3
WITH_CLOCKS = {Source.NVML, Source.NVIDIA_SMI, Source.SIMULATED}
Do = Callable[[GpuSource], None]


@dataclass(frozen=True)
class Case:
    """A way to make one kind of source with its GPUs, and to break what it reads from."""

    make: Callable[[float], GpuSource]
    gpus: int
    hide_power: Do = lambda _: None
    hang: Do = lambda _: None
    fail: Do = lambda _: None
    around: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)


def _nvml(directory: Path) -> Case:
    fake = FakeNvml(directory, gpus=3)

    def kill(source: GpuSource) -> None:
        assert isinstance(source, NvmlSource)
        assert source.child_pid is not None
        os.kill(source.child_pid, signal.SIGKILL)

    return Case(
        lambda deadline: NvmlSource(
            deadline_seconds=deadline, open_deadline_seconds=45, environ=fake.environ
        ),
        3,
        hide_power=lambda _: fake.rule("nvmlDeviceGetPowerUsage", device=0, error=NOT_SUPPORTED),
        hang=lambda _: fake.rule("nvmlDeviceGetPowerUsage", latency_seconds=30),
        fail=kill,
    )


def _nvidia_smi(directory: Path) -> Case:
    smi = FakeSmi(directory)
    second = make_gpu(1, "GPU-b")
    smi.answer([second, make_gpu(0, "GPU-a")])
    return Case(
        lambda deadline: NvidiaSmiSource(smi.path, deadline_seconds=deadline),
        2,
        hide_power=lambda _: smi.answer([make_gpu(0, "GPU-a", power__draw="ERR!"), second]),
        hang=lambda _: smi.behave("sleep 33 & sleep 33"),
        fail=lambda _: smi.behave("echo Segmentation fault; exit 139"),
    )


def _dcgm(_: Path) -> Case:
    dcgm = FakeDcgm()

    def hide_power(_: GpuSource) -> None:
        hidden = make_lines(0, "GPU-aaaa", DCGM_FI_DEV_POWER_USAGE=None)
        dcgm.page = hidden + make_lines(1, "GPU-bbbb")

    def hang(_: GpuSource) -> None:
        dcgm.delay_seconds = 30

    def fail(_: GpuSource) -> None:
        dcgm.cut_at = 4000

    return Case(
        lambda deadline: DcgmSource(dcgm.url, StickyXids(), deadline_seconds=deadline),
        2,
        hide_power,
        hang,
        fail,
        dcgm.serving(),
    )


def _amd(directory: Path) -> Case:
    amd = FakeAmd(directory)
    hidden = {**METRIC[0], "power": "N/A"}
    return Case(
        lambda deadline: AmdSource(amd.amd_smi_path, amd.rocm_smi_path, deadline_seconds=deadline),
        2,
        hide_power=lambda _: amd.answer(metric=[hidden, METRIC[1]]),
        hang=lambda _: amd.behave("sleep 33 & sleep 33"),
        fail=lambda _: amd.behave("echo AMDSMI_STATUS_DRIVER_NOT_LOADED >&2; exit 41"),
    )


def _rocm(directory: Path) -> Case:
    amd = FakeAmd(directory, rocm_only=True)
    hidden = {name: text for name, text in ROCM["card0"].items() if "Average" not in name}

    def hide_power(_: GpuSource) -> None:
        text = msgspec.json.encode({"card0": hidden}).decode()
        amd.behave(f"cat <<'END'\n{text}\nEND", program="rocm-smi")

    return Case(
        lambda deadline: AmdSource(amd.amd_smi_path, amd.rocm_smi_path, deadline_seconds=deadline),
        1,
        hide_power=hide_power,
        hang=lambda _: amd.behave("sleep 33 & sleep 33", program="rocm-smi"),
        fail=lambda _: amd.behave("echo Driver not initialized; exit 1", program="rocm-smi"),
    )


def _simulated(_: Path) -> Case:
    """Breaks at 100, 200 and 300 s of its time, which stands still otherwise."""
    fleet = msgspec.structs.replace(
        parse_fleet(DEFAULT_FLEET.read_text()),
        faults=tuple(
            ScriptedFault(kind=kind, at_seconds=at, duration_seconds=10, device=device, fields=of)
            for kind, at, device, of in (
                (FaultKind.NOT_AVAILABLE, 100, 0, ("power_draw_w",)),
                (FaultKind.HANG, 200, None, ()),
                (FaultKind.FAIL, 300, None, ()),
            )
        ),
    )
    simulation, now = Simulation(fleet), [0.0]

    def turn_to(seconds: float) -> Do:
        return lambda _: now.__setitem__(0, seconds)

    return Case(
        lambda deadline: SimulatedSource(
            simulation,
            Holdings(),
            lambda: now[0],
            interval_seconds=1.0,
            deadline_seconds=deadline,
        ),
        2,
        hide_power=turn_to(100),
        hang=turn_to(200),
        fail=turn_to(300),
    )


def _none(_: Path) -> Case:
    return Case(lambda _: NoSource(), 0)


def _driver_nvml(_: Path) -> Case:
    driver = require_host_driver()
    to_fail = "no call of a real NVML can be made to fail"

    def send(source: GpuSource, number: signal.Signals) -> None:
        assert isinstance(source, NvmlSource)
        assert source.child_pid is not None
        os.kill(source.child_pid, number)

    return Case(
        lambda deadline: NvmlSource(
            deadline_seconds=deadline, open_deadline_seconds=45, environ=driver.environ
        ),
        driver.gpus,
        hide_power=lambda _: pytest.skip(to_fail),
        hang=lambda source: send(source, signal.SIGSTOP),
        fail=lambda source: send(source, signal.SIGKILL),
    )


def _driver_nvidia_smi(directory: Path) -> Case:
    """The real program, behind a script that can stand in its way."""
    driver = require_host_driver()
    run = f'LD_LIBRARY_PATH={driver.environ["LD_LIBRARY_PATH"]} {driver.nvidia_smi} "$@"'
    smi = FakeSmi(directory)
    smi.behave(run)
    hiding = "awk -F ', ' -v OFS=', ' 'NF > 30 { $9 = \"[N/A]\" } { print }'"
    return Case(
        lambda deadline: NvidiaSmiSource(smi.path, deadline_seconds=deadline),
        driver.gpus,
        hide_power=lambda _: smi.behave(f"{run} | {hiding}"),
        hang=lambda _: smi.behave("sleep 33 & sleep 33"),
        fail=lambda _: smi.behave("echo Segmentation fault; exit 139"),
    )


READING = [_nvml, _nvidia_smi, _dcgm, _amd, _rocm, _simulated]
OF_THE_HOST = [_driver_nvml, _driver_nvidia_smi]
if isinstance(find_host_driver(), HostDriver):
    READING += OF_THE_HOST


@pytest.fixture(params=[*READING, _none], ids=lambda make: make.__name__[1:])
async def case(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Case]:
    made: Case = request.param(tmp_path)
    async with made.around:
        yield made


reading_sources = pytest.mark.parametrize(
    "case", READING, ids=lambda make: make.__name__[1:], indirect=True
)


@asynccontextmanager
async def opened(case: Case, *, deadline_seconds: float = 30) -> AsyncIterator[GpuSource]:
    source = case.make(deadline_seconds)
    await source.open()
    try:
        await source.inventory()
        yield source
    finally:
        await source.close()


def loose_ends() -> tuple[set[object], int]:
    """Programs that this process has not seen end, and how many sockets and pipes it holds."""
    here = psutil.Process()
    # Such a thread reaps a program and then tells the loop, which must not have ended by then.
    reaping = (each for each in threading.enumerate() if each.name.startswith("waitpid-"))
    return {*here.children(recursive=True), *reaping}, here.num_fds()


def test_the_driver_of_this_host_is_among_them() -> None:
    require_host_driver()
    assert READING[-len(OF_THE_HOST) :] == OF_THE_HOST


async def test_inventory_lists_devices_once_by_index(case: Case) -> None:
    async with opened(case) as source:
        inventory = await source.inventory()

    assert [device.index for device in inventory.devices] == list(range(case.gpus))
    assert len({device.uuid for device in inventory.devices}) == case.gpus
    assert all(device.name for device in inventory.devices)


async def test_a_reading_has_the_devices_of_the_inventory(case: Case) -> None:
    async with opened(case) as source:
        inventory = await source.inventory()
        reading = await source.read()

    found = [(gpu.index, gpu.uuid, gpu.name) for gpu in reading.gpus]
    assert found == [(facts.index, facts.uuid, facts.name) for facts in inventory.devices]
    assert (reading.lost, reading.hung, reading.faults) == ({}, {}, ())


async def test_memory_adds_up_to_no_more_than_there_is(case: Case) -> None:
    async with opened(case) as source:
        reading = await source.read()

    for gpu in reading.gpus:
        assert gpu.memory_total_mb is not None
        assert (gpu.memory_used_mb or 0) + (gpu.memory_free_mb or 0) <= gpu.memory_total_mb


async def test_a_reading_survives_the_wire(case: Case) -> None:
    async with opened(case) as source:
        reading = await source.read()

    sample = GpuSampled(
        node_id="node-a",
        boot_id=new_id(),
        sequence=1,
        observed_at=utcnow(),
        interval_seconds=1.0,
        source=source.source,
        gpus=reading.gpus,
    )
    assert msgspec.msgpack.decode(encode(sample), type=GpuSampled) == sample


async def test_only_simulated_devices_are_marked(case: Case) -> None:
    async with opened(case) as source:
        inventory = await source.inventory()

    simulated = source.source == "simulated"
    assert all(device.simulated is simulated for device in inventory.devices)


async def test_source_closes_twice_and_is_replaced(case: Case) -> None:
    source = case.make(5)
    await source.open()
    await source.close()
    await source.close()

    async with opened(case) as another:
        assert len((await another.read()).gpus) == case.gpus


@reading_sources
async def test_unreadable_field_alone_is_unknown(
    case: Case,
) -> None:
    async with opened(case) as source:
        before = (await source.read()).gpus[0]
        case.hide_power(source)
        after = (await source.read()).gpus[0]

    assert before.power_draw_w is not None
    assert after.power_draw_w is None
    assert known(before) - known(after) <= {"power_draw_w", "power_limit_w", "throttle_reasons"}
    assert after.memory_used_mb is not None


def known(reading: GpuReading) -> set[str]:
    return {name for name in reading.__struct_fields__ if getattr(reading, name) is not None}


@reading_sources
async def test_hang_is_told_by_the_deadline(case: Case, idle_clock: Clock) -> None:
    before = loose_ends()
    async with opened(case, deadline_seconds=DEADLINE_SECONDS) as source:
        await source.read()
        case.hang(source)
        started_at = idle_clock()
        with pytest.raises(ProbeHungError):
            await source.read()
        took = idle_clock() - started_at

    assert took < DEADLINE_SECONDS + STEP_SECONDS
    await settled(before)


@reading_sources
async def test_failure_is_told_and_leaves_nothing(case: Case) -> None:
    before = loose_ends()
    async with opened(case) as source:
        await source.read()
        case.fail(source)
        with pytest.raises(SourceFailedError) as failure:
            await source.read()

    assert not isinstance(failure.value, ProbeHungError)
    await settled(before)


async def settled(before: tuple[set[object], int]) -> None:
    """Wait until there are no more loose ends than before; the event loop reaps in its own time."""
    async with asyncio.timeout(30):
        while True:
            running, held = loose_ends()
            if running <= before[0] and held <= before[1] + 1:
                return
            await asyncio.sleep(0.02)


async def test_power_limit_of_unknown_device_is_refused(case: Case) -> None:
    async with opened(case) as source:
        with pytest.raises(RefusedError) as refusal:
            await source.set_power_limit("GPU-nowhere", 300.0)

    assert refusal.value.code in {ErrorCode.NOT_FOUND, ErrorCode.UNSUPPORTED}


async def test_a_clock_of_an_unknown_device_is_refused(case: Case) -> None:
    async with opened(case) as source:
        with pytest.raises(RefusedError) as refusal:
            await source.set_sm_clock("GPU-nowhere", 1200)

    assert refusal.value.code in {ErrorCode.NOT_FOUND, ErrorCode.UNSUPPORTED}


@reading_sources
async def test_unsupported_clock_is_refused_with_choices(case: Case) -> None:
    async with opened(case) as source:
        uuid = (await source.inventory()).devices[0].uuid
        with pytest.raises(RefusedError) as refusal:
            await source.set_sm_clock(uuid, 1)

    has_clocks = source.source in WITH_CLOCKS
    assert refusal.value.code is (ErrorCode.BAD_REQUEST if has_clocks else ErrorCode.UNSUPPORTED)
    assert set(refusal.value.details) == ({"minimum_mhz", "maximum_mhz"} if has_clocks else set())


@pytest.mark.parametrize(
    "case",
    [make for make in READING if make not in OF_THE_HOST],  # the host's own GPUs stay as they are
    ids=lambda make: make.__name__[1:],
    indirect=True,
)
async def test_clock_locks_and_unlocks_or_is_unsupported(case: Case) -> None:
    async with opened(case) as source:
        uuid = (await source.inventory()).devices[0].uuid
        for mhz in (1200, None, None):
            if source.source in WITH_CLOCKS:
                await source.set_sm_clock(uuid, mhz)
                continue
            with pytest.raises(RefusedError) as refusal:
                await source.set_sm_clock(uuid, mhz)
            assert refusal.value.code is ErrorCode.UNSUPPORTED
