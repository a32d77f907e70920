"""An agent on a fleet that breaks as scripted: each fault is told, and its end noticed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schemas.telemetry.readings import HealthAction, HealthKind, HealthState
from services.telemetry.app import create_service
from services.telemetry.settings import TelemetrySettings
from shared.testing import eventually
from tests.support.worlds.telemetry_client import NODE, Watcher, watching

DEVICES = "\n".join(
    f'{{ mother_uuid = "GPU-{number}", model_name = "Simulated", memory_size = "80G" }},'
    for number in range(4)
)


def make_settings(nats_url: str, directory: Path, script: str) -> TelemetrySettings:
    fleet = directory / "fleet.toml"
    fleet.write_text(f"devices = [\n{DEVICES}\n]\n{script}\n")
    return TelemetrySettings(
        source="simulated",
        fleet=str(fleet),
        nats_url=nats_url,
        node_id=NODE,
        data_dir=str(directory),
        interval_seconds=0.05,
        probe_deadline_seconds=0.1,
        metrics=False,
    )


@pytest.fixture
async def watcher(nats_url: str) -> AsyncIterator[Watcher]:
    async with watching(nats_url) as found:
        yield found


async def test_scripted_faults_are_told_once(
    nats_url: str, watcher: Watcher, tmp_path: Path
) -> None:
    script = """
    fault = [
      { kind = "xid", xid = 31, device = 0, at_seconds = 0.2 },
      { kind = "vanish", device = 1, at_seconds = 0.3, duration_seconds = 0.4 },
      { kind = "hang", device = 2, at_seconds = 0.3, duration_seconds = 0.4 },
      { kind = "mig_change", device = 3, instances = 2, at_seconds = 0.9, duration_seconds = 0.4 },
      { kind = "fail", at_seconds = 1.5, duration_seconds = 0.2 },
    ]
    """
    async with create_service(make_settings(nats_url, tmp_path, script)).running():
        await eventually(lambda: HealthKind.SOURCE_RECOVERED in watcher.changes, what="the end")
        await eventually(
            lambda: (
                {device.health for device in watcher.inventories[-1].devices} == {HealthState.OK}
            ),
            what="everything well again",
        )
        await watcher.samples_beyond(1)

    told = {(event.change, event.device_uuid) for event in watcher.health}
    assert {
        (HealthKind.XID, "GPU-0"),
        (HealthKind.GPU_LOST, "GPU-1"),
        (HealthKind.GPU_RECOVERED, "GPU-1"),
        (HealthKind.PROBE_HUNG, "GPU-2"),
        (HealthKind.PROBE_RECOVERED, "GPU-2"),
        (HealthKind.MIG_CHANGED, "GPU-3"),
    } <= told
    (xid,) = [event for event in watcher.health if event.change is HealthKind.XID]
    assert (xid.xid, xid.action) == (31, HealthAction.RESTART_APPLICATION)
    assert [gpu.uuid for gpu in watcher.samples[-1].gpus] == [f"GPU-{index}" for index in range(4)]
    assert all(sample.simulated for sample in watcher.samples)


async def test_scripted_hang_is_a_hung_probe(
    nats_url: str, watcher: Watcher, tmp_path: Path
) -> None:
    script = 'fault = [{ kind = "hang", at_seconds = 0.2, duration_seconds = 0.4 }]'
    async with create_service(make_settings(nats_url, tmp_path, script)).running():
        await eventually(lambda: HealthKind.PROBE_HUNG in watcher.changes, what="the hang")
        await eventually(
            lambda: (
                {device.health for device in watcher.inventories[-1].devices} == {HealthState.HUNG}
            ),
            what="every device hung",
        )
        await eventually(lambda: HealthKind.PROBE_RECOVERED in watcher.changes, what="recovery")
        await watcher.samples_beyond(2)

    assert watcher.changes.count(HealthKind.PROBE_HUNG) == 1
    hung, after = watcher.samples[-3].gpus[0], watcher.samples[-1].gpus[0]
    assert (after.energy_mj or 0) >= (hung.energy_mj or 0) > 0


async def test_errors_are_told_with_what_to_do(
    nats_url: str, watcher: Watcher, tmp_path: Path
) -> None:
    script = """
    fault = [
      { kind = "ecc_storm", device = 0, at_seconds = 0.2, corrected_per_second = 5000 },
      { kind = "ecc_storm", device = 1, at_seconds = 0.2, uncorrected = 1 },
      { kind = "not_available", device = 2, fields = ["power_draw_w"], at_seconds = 0.2 },
    ]
    """
    async with create_service(make_settings(nats_url, tmp_path, script)).running():
        await eventually(lambda: HealthKind.ECC_STORM in watcher.changes, what="the storm")
        await eventually(lambda: HealthKind.ECC_UNCORRECTED in watcher.changes, what="the error")
        await eventually(
            lambda: bool(watcher.inventories[-1].devices[1].recent_faults),
            what="the inventory that repeats it",
        )
        await watcher.samples_beyond(1)

    first, _, third, fourth = watcher.samples[-1].gpus
    storm, error = (device.recent_faults[-1] for device in watcher.inventories[-1].devices[:2])
    assert (storm.change, error.change) == (HealthKind.ECC_STORM, HealthKind.ECC_UNCORRECTED)
    assert error.action in {HealthAction.DRAIN, HealthAction.RESET}
    assert (first.ecc_corrected or 0) > 0
    assert (third.power_draw_w, third.memory_used_mb) == (None, fourth.memory_used_mb)
    assert fourth.power_draw_w is not None
