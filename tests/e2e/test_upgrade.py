"""Services of the last release are replaced by those of this one, while work goes on."""

import asyncio
import io
import os
import random
import shutil
import signal
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from shared.testing import eventually, short_directory
from shared.waiting import cancel_and_wait
from tests.support import distribution
from tests.support.distribution import Installed, build_wheel, install
from tests.support.paths import ROOT
from tests.support.processes.platform import PlatformProcess
from tests.support.stored_release import TASK as HALF_DONE

RELEASES = ROOT / "tests" / "e2e" / "releases.txt"
PAGE = Path("services/gateway/web/dist")
LEASE_SECONDS = 30
TASK = {**HALF_DONE, "task_name": "beside-an-upgrade"}
TASK["parameters"] = {"ttft-seconds": [0.005, 0.01, 0.02, 0.04], "slots": [1, 2, 4]}


def last_release() -> str:
    """Return the commit of the newest release."""
    lines = [line for line in RELEASES.read_text().splitlines() if not line.startswith("#")]
    return lines[-1].split()[1]


def missing() -> str | None:
    """Return what this test would need; None where all is there."""
    commit = last_release()
    command = ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        return f"needs the release's commit {commit} in git's history"
    return distribution.missing()


pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(missing() is not None, reason=missing() or "nothing is missing"),
]


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with short_directory() as path:
        yield path


@pytest.fixture(scope="module")
def former(directory: Path) -> Installed:
    """The last release, with the page of this one, which takes a while to build."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", last_release()], check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(directory / "source", filter="data")
    shutil.copytree(ROOT / PAGE, directory / "source" / PAGE)
    wheel = build_wheel(directory / "former-dist", directory / "source")
    return install(wheel, "server", directory / "former")


@pytest.fixture(scope="module")
def present(directory: Path) -> Installed:
    return install(build_wheel(directory / "dist"), "server", directory / "present")


@dataclass
class Upgrade:
    """A platform of the former release whose services are replaced while its supervisor rests."""

    platform: PlatformProcess
    present: Installed
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    async def replace(self, name: str) -> None:
        """End a service as its supervisor would, and start the present one in its place."""
        pid = self.platform.pid_of(name)
        assert pid is not None
        process = psutil.Process(pid)
        environment = process.environ()
        environment["PYTHONPATH"] = str(self.present.site_packages)
        ready_path = Path(environment["GPUSTEWARD_READY_FILE"])
        service = name.removesuffix("-2")
        process.terminate()
        await eventually(lambda: is_over(process), within_seconds=40, what=f"the end of {name}")
        self._start(service, environment, ready_path)
        await eventually(ready_path.is_symlink, within_seconds=60, what=f"{name} of this release")

    def _start(self, service: str, environment: dict[str, str], ready_path: Path) -> None:
        ready_path.unlink(missing_ok=True)
        self.started.append(
            subprocess.Popen(
                [self.present.python, "-m", f"services.{service}"],
                env=environment,
                cwd=self.present.root,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    async def stop(self) -> None:
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            await asyncio.to_thread(process.wait, 40)


def is_over(process: psutil.Process) -> bool:
    """Return whether it has ended; its supervisor, which rests, takes no notice of it."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True


@pytest_asyncio.fixture
async def upgrade(former: Installed, present: Installed, directory: Path) -> AsyncIterator[Upgrade]:
    platform = PlatformProcess(
        directory / "data", program=(str(former.program),), working_directory=directory
    )
    await platform.start()
    assert platform.process is not None
    upgrade = Upgrade(platform, present)
    try:
        yield upgrade
    finally:
        await upgrade.stop()
        os.kill(platform.process.pid, signal.SIGCONT)
        await platform.stop()


async def test_services_are_replaced_in_any_order_beside_work(
    upgrade: Upgrade, former: Installed, present: Installed
) -> None:
    platform = upgrade.platform
    body = {"request": {"gpus": 1, "lease_ttl_seconds": LEASE_SECONDS}, "holder": "notebook"}
    _, lease = await platform.request("POST", "/api/v1/reservations", body)
    _, task = await platform.request("POST", "/api/v1/tasks", TASK)
    renewals = asyncio.create_task(renew(platform, lease["reservation_id"]))

    async def is_begun() -> bool:
        _, view = await platform.request("GET", f"/api/v1/tasks/{task['task_id']}")
        return bool(view["experiments_by_state"].get("succeeded"))

    await eventually(is_begun, within_seconds=90, what="a first measured experiment")
    assert platform.process is not None
    os.kill(platform.process.pid, signal.SIGSTOP)
    names = [name for name in platform.states() if name not in {"nats", "postgres"}]
    random.Random(last_release()).shuffle(names)  # any order, the same for a release
    for name in names:
        await upgrade.replace(name)
        for installed in (former, present):
            nodes = installed.run(
                "gpusteward", "nodes", "--json", environment={"GPUSTEWARD_URL": platform.url}
            )
            assert nodes.returncode == 0, (name, installed.root, nodes.stderr)

    async def is_completed() -> bool:
        _, view = await platform.request("GET", f"/api/v1/tasks/{task['task_id']}")
        return bool(view["state"] == "completed")

    await eventually(is_completed, within_seconds=180, what="the end of the task")
    await cancel_and_wait(renewals)
    _, held = await platform.request("GET", f"/api/v1/reservations/{lease['reservation_id']}")
    path = f"/api/v1/experiments?task_id={task['task_id']}&limit=100"
    _, listed = await platform.request("GET", path)

    assert held["state"] in {"granted", "active"}
    states = [experiment["state"] for experiment in listed["experiments"]]
    assert states == ["succeeded"] * 12


async def renew(platform: PlatformProcess, reservation_id: str) -> None:
    """Keep a lease as a client does, which asks again while a service is away."""
    path = f"/api/v1/reservations/{reservation_id}"
    _, view = await platform.request("GET", f"{path}?wait_seconds=10")
    while True:
        with suppress(OSError, TimeoutError):
            await platform.request("POST", f"{path}/renew", {"epoch": view["epoch"]})
        await asyncio.sleep(2)
