"""The Compose fragment of a task's report, read by docker-compose itself."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.ready_forms import TUNED

READ_SECONDS = 120.0


async def read_by_compose(files: list[Path]) -> dict[str, Any]:
    """The services of all of them as it would start them."""
    options = [f"--file={each}" for each in files]
    process = await asyncio.create_subprocess_exec(
        *("docker-compose", *options, "config"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), READ_SECONDS)
    assert process.returncode == 0, err.decode()
    services: dict[str, Any] = yaml.safe_load(out)["services"]
    return services


@pytest.mark.skipif(
    shutil.which("docker-compose") is None,
    reason="reading a fragment needs docker-compose (Debian: docker-compose)",
)
async def test_compose_accepts_every_fragment(tmp_path: Path) -> None:
    files = []
    for tuned in TUNED:
        files.append(tmp_path / f"{tuned.name}.yaml")
        files[-1].write_text(tuned.forms().compose)

    services = await read_by_compose(files)

    assert set(services) == {each.name for each in TUNED}
    for tuned in TUNED:
        service = services[tuned.name]
        [device] = service["deploy"]["resources"]["reservations"]["devices"]
        assert (device["count"], device["driver"]) == (tuned.gpus, "nvidia")
        # Written out it doubles a $ again, so that what it writes may be read once more.
        assert tuned.engine.model in [each.replace("$$", "$") for each in service["command"]]
        mounts = [each["source"].replace("$$", "$") for each in service.get("volumes", ())]
        assert mounts == [tuned.engine.model] * tuned.engine.model.startswith("/")
