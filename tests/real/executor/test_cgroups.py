"""Engines in control groups: bounded, and found although they scrub their environment."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from services.executor.host.processes import find_labelled_processes
from services.executor.runtimes.runtime import Labels
from shared.processes.cgroups import Cgroup, CgroupLimits, Cgroups
from shared.testing import eventually, run_apart

HOARD = "x = []\nwhile True: x.append(bytearray(1 << 20))"
SCRUBBED = "exec env -i sleep 300"


def labels() -> Labels:
    return Labels(reservation_id=uuid4(), installation_id=f"test-{uuid4()}", node_id="node/1")


def started(
    group: Cgroup, argv: list[str], env: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """A process in the group."""
    return subprocess.Popen(argv, preexec_fn=group.enter, stderr=subprocess.DEVNULL, env=env)


@pytest.fixture
def cgroups() -> Cgroups:
    found = Cgroups.of_this_host()
    if not found.hierarchies:
        pytest.skip("needs control groups that may be written")
    return found


async def test_process_over_memory_limit_is_killed(cgroups: Cgroups) -> None:
    whose = labels()
    group = cgroups.make(whose.cgroup_names, CgroupLimits(memory_mb=64, cpus=1.5, pids=50))
    assert group is not None
    try:
        hoarder = started(group, [sys.executable, "-c", HOARD])
        exit_code = await asyncio.to_thread(hoarder.wait, 20)
        told = group.was_out_of_memory()
    finally:
        await cgroups.end(whose.cgroup_names)

    assert exit_code == -9
    assert told
    assert not any(directory.exists() for directory in group.directories)


async def test_unlabelled_children_end_with_cgroup(cgroups: Cgroups) -> None:
    whose = labels()
    group = cgroups.make(whose.cgroup_names, CgroupLimits())
    assert group is not None
    two = f"setsid sh -c '{SCRUBBED}' & setsid sh -c '{SCRUBBED}' & wait"
    parent = started(group, ["sh", "-c", two], {"PATH": os.environ["PATH"]})
    try:
        await eventually(lambda: len(group.pids()) == 3, what="all three in the group")
        found_by_label = [
            each
            for each in find_labelled_processes(whose.installation_id)
            if each.reservation_id == whose.reservation_id
        ]
        await cgroups.end(whose.cgroup_names)
    finally:
        parent.kill()
        parent.wait()

    assert found_by_label == []
    assert group.pids() == set()
    assert not group.was_out_of_memory()


async def test_last_cgroup_removes_installation_cgroup(
    cgroups: Cgroups,
) -> None:
    shared = labels()

    async def make_and_end() -> None:
        for _ in range(50):
            names = (*shared.cgroup_names[:-1], str(uuid4()))
            assert await asyncio.to_thread(cgroups.make, names, CgroupLimits()) is not None
            await asyncio.to_thread(run_apart, cgroups.end(names))

    await asyncio.gather(*(make_and_end() for _ in range(4)))

    left = [root / shared.cgroup_names[0] for root in cgroups.hierarchies]
    assert not any(directory.exists() for directory in left)


@pytest.mark.parametrize("error", [FileExistsError, FileNotFoundError])
def test_cgroup_is_made_though_parent_is_removed(
    error: type[OSError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    make = Path.mkdir

    def mkdir(path: Path, *, exist_ok: bool) -> None:
        made.append(path)
        if len(made) == 1:
            raise error(path)  # `mkdir` found it, then found no directory
        make(path, exist_ok=exist_ok)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    found = Cgroups((tmp_path / "gpusteward",), lambda _directory, _limits: None)

    group = found.make(labels().cgroup_names, CgroupLimits())

    assert group is not None
    assert group.directories[0].is_dir()


async def test_ending_absent_cgroup_is_silent(cgroups: Cgroups) -> None:
    whose = labels()

    await cgroups.end(whose.cgroup_names)

    # Unlike `rglob`, a walk goes on where other tests' groups vanish under it.
    groups = [
        group for root in cgroups.hierarchies for _, groups, _ in os.walk(root) for group in groups
    ]
    assert str(whose.reservation_id) not in groups


def test_unwritable_cgroups_are_not_used(tmp_path: Path) -> None:
    found = Cgroups.of_this_host(tmp_path)

    assert found.hierarchies == ()
    assert found.make(labels().cgroup_names, CgroupLimits(memory_mb=1)) is None


def test_version_2_is_written_with_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids\n")
    found = Cgroups.of_this_host(tmp_path)
    whose = labels()

    group = found.make(whose.cgroup_names, CgroupLimits(memory_mb=64, cpus=1.5, pids=50))

    assert group is not None
    [directory] = group.directories
    assert directory.name == str(whose.reservation_id)
    assert directory.parent.name == "node_1"
    assert (directory / "memory.max").read_text() == str(64 << 20)
    assert (directory / "cpu.max").read_text() == "150000 100000"
    assert (directory / "pids.max").read_text() == "50"
