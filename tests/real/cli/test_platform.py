"""The command line with the platform itself, on a simulated fleet."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from shared.local_platform.supervisor.leftovers import find_marked_processes
from shared.paths import DataDirectory
from shared.testing import eventually, short_directory
from tests.support.paths import ROOT

QUICK = ROOT / "schemas" / "examples" / "simulated-quick.json"
START_SECONDS = 45.0

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


class Installation:
    """A data directory, and commands that use it."""

    def __init__(self, data_dir: Path) -> None:
        self.directory = DataDirectory(data_dir)

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GPUSTEWARD_")}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.cli", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                **environment,
                "PYTHONPATH": str(ROOT),
                "GPUSTEWARD_DATA_DIR": str(self.directory.root),
                "GPUSTEWARD_LOCAL_TOKEN": "always",
            },
        )

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        process = await self.start(*arguments)
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    def left_behind(self) -> Sequence[int]:
        return find_marked_processes(str(self.directory.root.resolve()))


@pytest.fixture
async def installation() -> AsyncIterator[Installation]:
    with short_directory() as path:
        made = Installation(path / "data")
        yield made
        assert made.left_behind() == []


async def test_run_starts_platform_and_leaves_nothing(
    installation: Installation,
) -> None:
    code, out, err = await installation.run("run", "--simulate", str(QUICK))

    assert code == 0, err
    assert "platform started at http://127.0.0.1:" in err
    assert "completed: 4 of 4 experiments succeeded" in out
    assert "experiments by minimize_latency (mean_e2e_latency)" in out
    assert "GPUs while measured, min/mean/max" in out
    assert "the engine is simulated" in out
    assert installation.directory.read_endpoint() is None


async def test_a_killed_run_takes_its_platform_with_it(
    installation: Installation, tmp_path: Path
) -> None:
    process = await installation.start("run", "--simulate", str(_long_task(tmp_path)))
    assert process.stdout is not None
    async with asyncio.timeout(START_SECONDS):
        while b"experiment 1/1" not in (line := await process.stdout.readline()):
            assert line, await process.communicate()
    assert installation.left_behind()

    process.kill()
    await process.communicate()

    await eventually(
        lambda: not installation.left_behind(), within_seconds=20, what="the platform to be gone"
    )


def _long_task(tmp_path: Path) -> Path:
    """One experiment that would measure for minutes."""
    task = json.loads(QUICK.read_text())
    task["task_name"] = "long"
    task["parameters"] = {"ttft-seconds": [1.0], "tpot-seconds": [0.1]}
    task["benchmark"]["max_requests_per_iteration"] = 1000
    task["benchmark"]["max_time_per_iteration"] = 5
    task["optimization"]["timeout_per_iteration"] = 400
    path = tmp_path / "long.json"
    path.write_text(json.dumps(task))
    return path
