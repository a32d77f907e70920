"""Agents on the example fleets, which have more than whole GPUs of one maker."""

from collections import Counter
from pathlib import Path

import pytest

import schemas
from schemas.telemetry.readings import LinkKind
from services.telemetry.app import create_service
from services.telemetry.settings import TelemetrySettings
from shared.accelerator_rules.compute_capability import has_capability
from shared.testing import eventually
from tests.support.worlds.telemetry_client import NODE, watching

EXAMPLES = Path(schemas.__file__).parent / "examples"


@pytest.mark.parametrize(
    ("name", "profiles", "links", "cuda"),
    [
        ("h100", {None: 8}, {LinkKind.NVLINK: 28}, None),
        ("fractional", {None: 2}, {}, "12.2"),
        ("mig", {None: 2, "3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}, {}, "12.4"),
        ("rocm", {None: 4}, {LinkKind.SYS: 6}, None),
    ],
)
async def test_an_example_fleet_is_told_and_read(
    nats_url: str,
    tmp_path: Path,
    name: str,
    profiles: dict[str | None, int],
    links: dict[LinkKind, int],
    cuda: str | None,
) -> None:
    settings = TelemetrySettings(
        source="simulated",
        fleet=str(EXAMPLES / f"fleet-{name}.toml"),
        nats_url=nats_url,
        node_id=NODE,
        data_dir=str(tmp_path),
        interval_seconds=0.05,
        metrics=False,
    )

    async with watching(nats_url) as watcher, create_service(settings).running():
        await eventually(lambda: bool(watcher.inventories), what="an inventory")
        await watcher.samples_beyond(1)

    told = watcher.inventories[-1]
    assert Counter(device.mig_profile for device in told.devices) == profiles
    assert Counter(link.kind for link in told.links) == links
    assert told.host.cuda_driver_version == cuda
    assert {has_capability(device.name) for device in told.devices} == {name != "rocm"}
    assert all(device.simulated for device in told.devices)
    assert {gpu.uuid for gpu in watcher.samples[-1].gpus} == {each.uuid for each in told.devices}
