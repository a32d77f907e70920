"""Control groups: what an engine or a command may take of the host, and which processes it is.

Version 2 where the host has it with the controllers wanted, else version 1. Where neither can be
written, as for most users who are not root, they run unbounded and are known by their labels alone.
Directories are named by installation, node and reservation, so that no other's is met.
"""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import Struct

from shared.logging import log
from shared.processes.signals import signal_if

ROOT: Final = Path("/sys/fs/cgroup")
CONTROLLERS: Final = ("memory", "cpu", "pids")
PROC: Final = Path("/proc")
PERIOD_MICROSECONDS: Final = 100_000
POLL_SECONDS: Final = 0.02
COMPLAIN_AFTER: Final = 250  # polls
MAKE_ATTEMPTS: Final = 10
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")


class CgroupLimits(Struct, frozen=True, kw_only=True):
    """None is no bound. `cpus` may be a fraction."""

    memory_mb: int | None = None
    cpus: float | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The processes under one reservation: one directory in each hierarchy."""

    directories: tuple[Path, ...]

    def enter(self) -> None:
        """Put the calling process into it; what it starts from then on is in it too."""
        for directory in self.directories:
            descriptor = os.open(directory / "cgroup.procs", os.O_WRONLY)
            try:
                os.write(descriptor, b"0")
            finally:
                os.close(descriptor)

    def pids(self) -> set[int]:
        return {pid for directory in self.directories for pid in _pids(directory)}

    def was_out_of_memory(self) -> bool:
        """True if the kernel killed a process of the group for exceeding its memory limit."""
        for directory in self.directories:
            for name in ("memory.events", "memory.oom_control"):
                for line in _lines(directory / name):
                    key, _, count = line.partition(" ")
                    if key == "oom_kill" and count.strip() not in {"", "0"}:
                        return True
        return False

    async def end(self) -> None:
        """SIGKILL to all of it until nothing is left, then remove it, and what it alone was in."""
        polls = 0
        while pids := await asyncio.to_thread(self._kill_all):
            polls += 1
            if polls % COMPLAIN_AFTER == 0:
                log.error(
                    "cgroup_outlives_sigkill", pids=sorted(pids), cgroup=str(self.directories[0])
                )
            await asyncio.sleep(POLL_SECONDS)
        for directory in self.directories:
            node = directory.parent
            with contextlib.suppress(OSError):
                for path in (directory, node, node.parent):
                    path.rmdir()

    def _kill_all(self) -> set[int]:
        """Kill once; return the processes that were there."""
        pids = self.pids()
        for pid in pids:
            signal_if(self._has, pid, signal.SIGKILL)
        return pids

    def _has(self, pid: int) -> bool:
        """Return True if the process is in the group, by the process's own file: lists of groups
        may be long.
        """
        inside = {
            f"/{directory.relative_to(directory.parents[3]).as_posix()}"
            for directory in self.directories
        }
        groups = (line.split(":", 2)[-1] for line in _lines(PROC / str(pid) / "cgroup"))
        return any(group.endswith(name) for group in groups for name in inside)


@dataclass(frozen=True, slots=True)
class Cgroups:
    """`write` puts the limits into a directory of one hierarchy; no hierarchies, no groups."""

    hierarchies: tuple[Path, ...]
    write: Callable[[Path, CgroupLimits], None]

    @classmethod
    def of_this_host(cls, root: Path = ROOT) -> "Cgroups":
        """Return the control groups that this process may write on this host."""
        if (root / "cgroup.controllers").exists():
            if _enables_controllers(root):
                return cls((root / "gpusteward",), _write_v2)
            return cls((), _write_v2)
        roots = tuple(root / name for name in CONTROLLERS if _is_writable(root / name))
        return cls(tuple(path / "gpusteward" for path in roots), _write_v1)

    def make(self, names: Sequence[str], limits: CgroupLimits) -> Cgroup | None:
        """A group below one for each name but the last, or None where that is not possible."""
        group = self._group(names)
        if group is None:
            return None
        try:
            for directory in group.directories:
                _make_with_controllers(directory)
                self.write(directory, limits)
        except OSError as error:
            log.warning("cgroup_unavailable", error=str(error))
            return None
        return group

    async def end(self, names: Sequence[str]) -> None:
        """End and remove what is left of a group."""
        group = self._group(names)
        if group is not None and any(directory.exists() for directory in group.directories):
            await group.end()

    def _group(self, names: Sequence[str]) -> Cgroup | None:
        if not self.hierarchies:
            return None
        inside = Path(*(_UNSAFE.sub("_", name) or "_" for name in names))
        return Cgroup(tuple(hierarchy / inside for hierarchy in self.hierarchies))


def _write_v2(directory: Path, limits: CgroupLimits) -> None:
    if limits.memory_mb is not None:
        (directory / "memory.max").write_text(str(limits.memory_mb << 20))
        if (swap := directory / "memory.swap.max").exists():
            swap.write_text("0")
    if limits.cpus is not None:
        quota = int(limits.cpus * PERIOD_MICROSECONDS)
        (directory / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")
    if limits.pids is not None:
        (directory / "pids.max").write_text(str(limits.pids))


def _write_v1(directory: Path, limits: CgroupLimits) -> None:
    """Write each limit into the hierarchy of its own controller."""
    bounds: dict[str, str | None] = {
        "memory.limit_in_bytes": None if limits.memory_mb is None else str(limits.memory_mb << 20),
        "cpu.cfs_quota_us": None
        if limits.cpus is None
        else str(int(limits.cpus * PERIOD_MICROSECONDS)),
        "pids.max": None if limits.pids is None else str(limits.pids),
    }
    for name, value in bounds.items():
        if value is not None and (directory / name).exists():
            (directory / name).write_text(value)


def _make_with_controllers(directory: Path) -> None:
    """Make it and what is missing above; in version 2 each level hands its controllers down."""
    for attempt in range(1, MAKE_ATTEMPTS + 1):
        missing = [directory]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        try:
            for path in reversed(missing):
                _enables_controllers(path.parent)
                path.mkdir(exist_ok=True)
        except (FileNotFoundError, FileExistsError):
            # Whoever ended the last group of a node has removed what this is made in, or what
            # `mkdir` found in its place and looked at once more.
            if attempt == MAKE_ATTEMPTS:
                raise
        else:
            return


def _enables_controllers(directory: Path) -> bool:
    """Return True if groups below have the controllers of version 2, after enabling them if need
    be.
    """
    switch = directory / "cgroup.subtree_control"
    if not switch.exists():
        return False
    controllers = set(CONTROLLERS)
    if not controllers - set(" ".join(_lines(switch)).split()):
        return True
    try:
        switch.write_text(" ".join(f"+{name}" for name in CONTROLLERS))
    except OSError:
        return False
    return True


def _is_writable(directory: Path) -> bool:
    return directory.is_dir() and os.access(directory, os.W_OK)


def _pids(directory: Path) -> list[int]:
    return [int(line) for line in _lines(directory / "cgroup.procs") if line.isdigit()]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
