"""nvidia-smi as a source: what it gets wrong is told, and takes nothing else with it."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from schemas.errors import ErrorCode
from schemas.telemetry.readings import GpuProcess, HealthKind, HealthState, Source
from services.telemetry.app import create_service
from services.telemetry.settings import TelemetrySettings
from services.telemetry.sources.nvidia_smi.source import NvidiaSmiSource
from services.telemetry.sources.source import ProbeHungError, SourceAbsentError, SourceFailedError
from shared.errors import RefusedError
from shared.testing import eventually
from tests.support.fakes.nvidia_smi import FakeSmi, make_gpu
from tests.support.idle_clock import STEP_SECONDS, Clock
from tests.support.processes.children import children_named
from tests.support.worlds.telemetry_client import NODE, Watcher, watching

INTERVAL_SECONDS = 0.05
LOST = make_gpu(0, "!lost")


def make_settings(nats_url: str, smi: FakeSmi, **overrides: object) -> TelemetrySettings:
    values: dict[str, object] = {
        "source": "nvidia-smi",
        "nats_url": nats_url,
        "node_id": NODE,
        "interval_seconds": INTERVAL_SECONDS,
        "smi_path": smi.path,
        **overrides,
    }
    return TelemetrySettings(**values)  # type: ignore[arg-type]  # overrides of several types


@pytest.fixture
def smi(tmp_path: Path) -> FakeSmi:
    return FakeSmi(tmp_path)


@pytest.fixture
async def watcher(nats_url: str) -> AsyncIterator[Watcher]:
    async with watching(nats_url) as found:
        yield found


async def opened(smi: FakeSmi, *, deadline_seconds: float = 30) -> NvidiaSmiSource:
    source = NvidiaSmiSource(smi.path, deadline_seconds=deadline_seconds)
    await source.open()
    await source.inventory()
    return source


async def test_broken_driver_is_never_simulated(
    nats_url: str, watcher: Watcher, smi: FakeSmi
) -> None:
    smi.behave('echo "NVIDIA-SMI has failed because it cannot communicate with the NVIDIA driver."')
    settings = make_settings(nats_url, smi, source="auto", simulate=True)
    async with create_service(settings).running():
        await eventually(lambda: HealthKind.SOURCE_FAILED in watcher.changes, what="the failure")
        with pytest.raises(RefusedError, match="communicate with the NVIDIA driver") as refusal:
            await watcher.snapshot()
        assert refusal.value.code is ErrorCode.UNAVAILABLE
        assert watcher.samples == []

        smi.answer([make_gpu(power__draw="[N/A]")])
        await eventually(lambda: HealthKind.SOURCE_RECOVERED in watcher.changes, what="recovery")
        await watcher.samples_beyond(1)

    assert all(event.source is not Source.SIMULATED for event in watcher.inventories)
    assert watcher.samples[-1].source is Source.NVIDIA_SMI
    assert watcher.samples[-1].gpus[0].power_draw_w is None
    assert watcher.samples[-1].gpus[0].memory_used_mb == 1024


async def test_lost_gpu_is_told_while_others_are_read(
    nats_url: str, watcher: Watcher, smi: FakeSmi
) -> None:
    first, second = make_gpu(0, "GPU-aaaa"), make_gpu(1, "GPU-bbbb")
    smi.answer([first, second])
    settings = make_settings(nats_url, smi, inventory_seconds=0.5)
    async with create_service(settings).running():
        await watcher.samples_beyond(1)
        smi.answer([LOST, second])
        await eventually(lambda: HealthKind.GPU_LOST in watcher.changes, what="the loss")
        await eventually(lambda: watcher.inventories[-1].devices[0].health is HealthState.LOST)
        assert "GPU is lost" in (watcher.inventories[-1].devices[0].health_detail or "")
        assert watcher.inventories[-1].devices[1].health is HealthState.OK
        await watcher.samples_beyond(2)
        assert [gpu.uuid for gpu in watcher.samples[-1].gpus] == ["GPU-bbbb"]

        smi.answer([first, second])
        await eventually(lambda: HealthKind.GPU_RECOVERED in watcher.changes, what="the return")
        await eventually(lambda: watcher.inventories[-1].devices[0].health is HealthState.OK)

    assert {event.device_uuid for event in watcher.health if "gpu" in event.change} == {"GPU-aaaa"}
    assert HealthKind.SOURCE_FAILED not in watcher.changes


async def test_slow_probe_leaves_countable_gaps(
    nats_url: str, watcher: Watcher, smi: FakeSmi, tmp_path: Path
) -> None:
    running = tmp_path / "running"
    smi.answer(
        [make_gpu()],
        before=f'case "$1" in --query-gpu*) mkdir {running} || echo piled-up; sleep 0.12; '
        f"rmdir {running};; esac",
    )
    async with create_service(make_settings(nats_url, smi)).running():
        await watcher.samples_beyond(8)

    _, *samples = watcher.samples  # the first one also had to open the source
    numbers = [sample.sequence for sample in samples]
    assert all(later - earlier >= 2 for earlier, later in pairwise(numbers))
    seconds = (samples[-1].observed_at - samples[0].observed_at).total_seconds()
    # A sample has the number of its slot and the time at which its reading ended.
    longest = max(later - earlier for earlier, later in pairwise(numbers))
    passed = seconds / INTERVAL_SECONDS
    assert numbers[-1] - numbers[0] == pytest.approx(passed, abs=longest + 1)
    assert {len(sample.gpus) for sample in watcher.samples} == {1}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        pytest.param("exec sleep 30", HealthKind.PROBE_HUNG, id="it hangs"),
        pytest.param(
            "exit 0", HealthKind.SOURCE_FAILED, id="it prints nothing", marks=pytest.mark.long
        ),
        pytest.param("printf '\\377\\000, x\\n0, 1\\n'", HealthKind.SOURCE_FAILED, id="garbage"),
    ],
)
async def test_nvidia_smi_faults_are_told_and_end(
    nats_url: str,
    watcher: Watcher,
    smi: FakeSmi,
    body: str,
    told: HealthKind,
    idle_clock: Clock,
) -> None:
    settings = make_settings(
        nats_url, smi, interval_seconds=0.3, smi_deadline_seconds=0.5, open_deadline_seconds=2.0
    )
    async with create_service(settings).running():
        await watcher.samples_beyond(2)
        smi.behave(body)
        began = idle_clock()
        await eventually(lambda: told in watcher.changes, what="the failure")
        took = idle_clock() - began
        await eventually(
            lambda: watcher.inventories[-1].devices[0].health is not HealthState.OK,
            what="the state",
        )
        smi.answer([make_gpu()])
        recovered = {HealthKind.PROBE_RECOVERED, HealthKind.SOURCE_RECOVERED}
        await eventually(lambda: bool(recovered & set(watcher.changes)), what="recovery")
        await watcher.samples_beyond(1)

    assert watcher.changes.count(told) == 1
    assert took < 3 * 0.3 + STEP_SECONDS
    assert children_named("sleep") == []


async def test_reading_has_all_fields_and_processes(smi: FakeSmi) -> None:
    smi.answer([make_gpu(), make_gpu(1, "GPU-bbbb")], processes="GPU-aaaa, 0, 512, /opt/x/serve\n")
    source = await opened(smi)

    inventory, reading = await source.inventory(), await source.read()

    assert inventory.cuda_driver_version == "12.4"
    busy, idle = reading.gpus
    unknown = {name for name in busy.__struct_fields__ if getattr(busy, name) is None}
    assert unknown == {"energy_mj", "fan_percent", "nvlinks_up", "buffered", "pods", "pod_uses"}
    assert busy.processes == (GpuProcess(0, "serve", 512),)
    assert idle.processes == ()


async def test_a_warning_hides_no_process(smi: FakeSmi) -> None:
    """A damaged infoROM ends every run with exit code 14, and a line of its own."""
    gpu = make_gpu()
    squatter = f"{gpu['uuid']}, 0, 20000, /usr/bin/squatter"
    warning = "WARNING: infoROM is corrupted at gpu 0000:18:00.0"
    smi.answer([gpu], processes=f"{squatter}\n{warning}\n", exit_code=14)
    source = await opened(smi)

    reading = await source.read()

    assert reading.lost == {}
    (only,) = reading.gpus
    assert [process.name for process in only.processes or ()] == ["squatter"]


async def test_unlistable_processes_are_unknown_alone(
    smi: FakeSmi,
) -> None:
    smi.answer([make_gpu()], before='case "$1" in --query-compute*) echo ERR; exit 1;; esac')
    source = await opened(smi)

    (gpu,) = (await source.read()).gpus

    assert gpu.processes is None
    assert gpu.memory_used_mb == 1024


async def test_an_old_version_is_asked_for_what_it_knows(smi: FakeSmi) -> None:
    unknown = ("compute_cap", "utilization.encoder", "remapped_rows.failure")
    old = {name: value for name, value in make_gpu().items() if name not in unknown}
    old["clocks_event_reasons.active"] = old.pop("clocks_throttle_reasons.active")
    smi.answer([old])
    source = await opened(smi)

    (device,) = (await source.inventory()).devices
    (gpu,) = (await source.read()).gpus

    assert (device.compute_capability, device.mig_enabled) == (None, False)
    assert (gpu.encoder_percent, gpu.remap_failed, gpu.memory_used_mb) == (None, None, 1024)
    assert gpu.throttle_reasons == ("sw_power_cap", "hw_thermal_slowdown")


async def test_hung_run_is_killed_with_its_children(smi: FakeSmi) -> None:
    source = await opened(smi, deadline_seconds=0.3)
    smi.behave("sleep 31 & sleep 31")

    with pytest.raises(ProbeHungError, match="within"):
        await source.read()

    # Killed is not yet gone: what the shell had started is reaped by the init process.
    await eventually(
        lambda: not any(map(is_sleep, psutil.process_iter(["cmdline"]))), what="no sleep left"
    )


def is_sleep(process: psutil.Process) -> bool:
    return bool(process.info["cmdline"] == ["sleep", "31"])


async def test_endless_output_is_a_failure(smi: FakeSmi) -> None:
    source = await opened(smi)
    smi.behave("exec cat /dev/zero")

    with pytest.raises(SourceFailedError, match="without end"):
        await source.read()


async def test_a_cancelled_reading_leaves_no_program(smi: FakeSmi) -> None:
    source = await opened(smi)
    smi.behave("exec sleep 32")
    reading = asyncio.ensure_future(source.read())
    await eventually(lambda: len(children_named("sleep")) == 2, what="both queries")

    reading.cancel()
    await asyncio.wait([reading])

    await eventually(lambda: children_named("sleep") == [], what="both programs gone")


@pytest.mark.parametrize(
    ("before", "code"),
    [
        pytest.param(
            'case "$2" in --power*) echo "Insufficient permissions"; exit 4;; esac',
            ErrorCode.FORBIDDEN,
            id="not root",
        ),
        pytest.param(
            'case "$2" in --power*) echo "not supported for GPU"; exit 3;; esac',
            ErrorCode.UNSUPPORTED,
            id="a board without limits",
        ),
    ],
)
async def test_power_limit_is_refused_in_smi_words(
    smi: FakeSmi, before: str, code: ErrorCode
) -> None:
    smi.answer([make_gpu()], before=before)
    source = await opened(smi)

    with pytest.raises(RefusedError, match="said") as refusal:
        await source.set_power_limit("GPU-aaaa", 400)

    assert refusal.value.code is code


async def test_power_limit_is_set_within_range(smi: FakeSmi, tmp_path: Path) -> None:
    said = tmp_path / "said"
    smi.answer([make_gpu()], before=f'case "$2" in --power*) echo "$*" >{said}; exit 0;; esac')
    source = await opened(smi)

    assert await source.set_power_limit("GPU-aaaa", 400) == 700
    assert said.read_text() == "--id=GPU-aaaa --power-limit=400\n"
    with pytest.raises(RefusedError) as refusal:
        await source.set_power_limit("GPU-aaaa", 100)
    assert refusal.value.details == {"minimum_w": 200, "maximum_w": 700}


async def test_clock_is_locked_by_the_program(smi: FakeSmi, tmp_path: Path) -> None:
    said = tmp_path / "said"
    smi.answer(
        [make_gpu()], before=f'case "$2" in *-gpu-clocks*) echo "$*" >>{said}; exit 0;; esac'
    )
    source = await opened(smi)

    await source.set_sm_clock("GPU-aaaa", 1500)
    with pytest.raises(RefusedError, match="345 to 1980 MHz"):
        await source.set_sm_clock("GPU-aaaa", 2400)
    await source.set_sm_clock("GPU-aaaa", None)

    assert said.read_text().splitlines() == [
        "--id=GPU-aaaa --lock-gpu-clocks=1500,1500",
        "--id=GPU-aaaa --reset-gpu-clocks",
    ]


async def test_no_device_and_no_program_are_absent(smi: FakeSmi) -> None:
    smi.behave('echo "No devices were found"')

    for path in (smi.path, f"{smi.path}-missing"):
        with pytest.raises(SourceAbsentError):
            await NvidiaSmiSource(path, deadline_seconds=5).open()
