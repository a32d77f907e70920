"""An agent on NVML, over a fake library: what it tells of GPUs that hang, fail, or fall off."""

from pathlib import Path

import pytest

from schemas.telemetry.readings import HealthAction, HealthKind, HealthState, Source
from services.telemetry.app import create_service
from services.telemetry.settings import TelemetrySettings
from shared.errors import RefusedError
from shared.testing import eventually
from tests.support.fakes.nvml import FakeNvml, nvml_children
from tests.support.idle_clock import STEP_SECONDS, Clock
from tests.support.worlds.telemetry_client import NODE, Watcher, watching

INTERVAL_SECONDS = 0.5


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path)


@pytest.fixture
def fake_driver(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """The fake as the driver of this host."""
    for name in ("LD_LIBRARY_PATH", "FAKE_NVML_STATE"):
        monkeypatch.setenv(name, fake.environ[name])
    return fake


async def test_agent_outlives_a_hung_driver(
    nats_url: str, fake_driver: FakeNvml, idle_clock: Clock
) -> None:
    settings = TelemetrySettings(
        nats_url=nats_url,
        node_id=NODE,
        interval_seconds=INTERVAL_SECONDS,
        probe_deadline_seconds=2 * INTERVAL_SECONDS,
    )
    async with watching(nats_url) as watcher, create_service(settings).running():
        await watcher.samples_beyond(1)
        fake_driver.rule("nvmlDeviceGetTemperature", latency_seconds=30)
        hung_at = idle_clock()
        await _until(watcher, HealthKind.PROBE_HUNG)
        assert idle_clock() - hung_at < 3 * INTERVAL_SECONDS + STEP_SECONDS
        await eventually(
            lambda: (
                {device.health for device in watcher.inventories[-1].devices} == {HealthState.HUNG}
            ),
            what="hung devices in the inventory",
        )

        fake_driver.clear_rules()
        await _until(watcher, HealthKind.PROBE_RECOVERED)
        await watcher.samples_beyond(2)
        await eventually(
            lambda: (
                {device.health for device in watcher.inventories[-1].devices} == {HealthState.OK}
            ),
            what="devices that are well",
        )

    assert {sample.source for sample in watcher.samples} == {Source.NVML}
    assert len({sample.boot_id for sample in watcher.samples}) == 1
    assert watcher.changes[0] == HealthKind.AGENT_STARTED
    assert watcher.changes[-1] == HealthKind.AGENT_STOPPED
    assert nvml_children() == set()


async def test_agent_starts_beside_a_hanging_driver(
    nats_url: str, fake_driver: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.telemetry.agent.READY_SECONDS", 0.1)
    fake_driver.rule("nvmlInitWithFlags", latency_seconds=60)
    settings = TelemetrySettings(
        nats_url=nats_url, node_id=NODE, source="nvml", open_deadline_seconds=1.5
    )
    async with watching(nats_url) as watcher, create_service(settings).running():
        with pytest.raises(RefusedError, match="it is being opened"):
            await watcher.snapshot()
        await _until(watcher, HealthKind.PROBE_HUNG)

    assert nvml_children() == set()


async def test_auto_prefers_real_gpus_to_a_fleet(nats_url: str, fake_driver: FakeNvml) -> None:
    settings = TelemetrySettings(
        nats_url=nats_url, node_id=NODE, interval_seconds=0.1, simulate=True
    )
    async with watching(nats_url) as watcher, create_service(settings).running():
        await watcher.samples_beyond(1)

    assert watcher.samples[0].source is Source.NVML


async def test_hanging_gpu_is_told_while_other_reports(
    nats_url: str, fake_driver: FakeNvml, idle_clock: Clock
) -> None:
    settings = TelemetrySettings(
        nats_url=nats_url,
        node_id=NODE,
        interval_seconds=INTERVAL_SECONDS,
        probe_deadline_seconds=2 * INTERVAL_SECONDS,
        metrics=False,
    )
    async with watching(nats_url) as watcher, create_service(settings).running():
        await watcher.samples_beyond(1)
        fake_driver.rule("nvmlDeviceGetPowerUsage", device=0, latency_seconds=30)
        fake_driver.xid(1, 48)
        hung_at = idle_clock()
        await _until(watcher, HealthKind.PROBE_HUNG)
        assert idle_clock() - hung_at < 3 * INTERVAL_SECONDS + STEP_SECONDS
        await watcher.samples_beyond(4)
        assert [gpu.index for gpu in watcher.samples[-1].gpus] == [1]

        fake_driver.clear_rules()
        await _until(watcher, HealthKind.PROBE_RECOVERED)
        await eventually(lambda: len(watcher.samples[-1].gpus) == 2, what="both GPUs")

    numbers = [sample.sequence for sample in watcher.samples]
    assert numbers == list(range(1, len(numbers) + 1)), "ticks were missed"
    (hung,) = (event for event in watcher.health if event.change is HealthKind.PROBE_HUNG)
    assert hung.device_uuid == "GPU-fa4e0000-0000-0000-0000-000000000000"
    (xid,) = (event for event in watcher.health if event.change is HealthKind.XID)
    assert (xid.xid, xid.action) == (48, HealthAction.RESET)
    devices = watcher.inventories[-1].devices
    assert [device.health for device in devices] == [HealthState.OK, HealthState.OK]
    assert [fault.xid for fault in devices[1].recent_faults] == [48]


async def _until(watcher: Watcher, change: HealthKind) -> None:
    await eventually(lambda: change in watcher.changes, what=str(change))
