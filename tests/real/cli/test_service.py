"""`gpusteward service` on a host that systemd has booted."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.testing import eventually, short_directory
from tests.support.paths import ROOT
from tests.support.processes import booted_host
from tests.support.processes.booted_host import BootedHost, host_in

PROGRAM = Path(sys.executable).with_name("gpusteward")
UNIT = "gpusteward-up.service"
START_SECONDS = 90

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        booted_host.missing() is not None, reason=booted_host.missing() or "nothing is missing"
    ),
]


@pytest.fixture
def host() -> Iterator[BootedHost]:
    with short_directory() as directory, host_in(directory) as off:
        yield off


async def gpus_are_shown(host: BootedHost) -> None:
    def shows_gpus() -> bool:
        asked = host.run(PROGRAM, "gpus", "--json")
        return asked.returncode == 0 and bool(json.loads(asked.stdout)["gpus"])

    await eventually(shows_gpus, within_seconds=START_SECONDS, every_seconds=1, what="GPUs")


async def test_platform_is_there_again_after_a_power_cut(host: BootedHost) -> None:
    await host.boot()
    host.run("rm", "--recursive", "--force", "/var/lib/gpusteward")  # a copy of this host's
    host.open_to_all_users(Path(sys.executable), ROOT / "README.md")

    installed = host.run(PROGRAM, "service", "install", "up", "--", "--simulate")
    assert installed.returncode == 0, installed.stderr
    await gpus_are_shown(host)
    reserved = json.loads(host.run(PROGRAM, "reserve", "--gpus", "1", "--json").stdout)
    owner = host.run("stat", "--format=%U", "/var/lib/gpusteward/postgres").stdout.strip()
    host.power_off()
    await host.boot()
    await gpus_are_shown(host)
    shown = json.loads(host.run(PROGRAM, "show", reserved["reservation_id"], "--json").stdout)
    removed = host.run(PROGRAM, "service", "uninstall", "up")

    assert owner == "gpusteward"
    assert shown["reservation_id"] == reserved["reservation_id"]
    assert removed.stdout.splitlines() == [
        f"{UNIT} is stopped, and /etc/systemd/system/{UNIT} removed",
        "stays: /var/lib/gpusteward, its data",
        "stays: /etc/gpusteward/up.env, its settings",
        "stays: the user gpusteward",
    ]
    assert host.run("systemctl", "status", UNIT).returncode == 4  # no such unit
    assert host.run("pgrep", "--uid", "gpusteward").stdout == ""
