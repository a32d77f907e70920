"""Ends and removes everything that a private container engine of the tests has made.

Run as a program it is the engine's watcher: it waits until its standard input closes, which is when
the test process closes it or dies of anything, and then leaves nothing behind. It knows an engine
by its number alone, so that whoever finds one without an owner can end it too.
"""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ENGINES: Final = 256
ENOUGH_BYTES: Final = 2 << 30
END_SECONDS: Final = 20.0
COLLECT_SECONDS: Final = 0.5
POLL_SECONDS: Final = 0.01
PROGRAMS: Final = frozenset({"dockerd", "containerd", "containerd-shim-runc-v2", "runc"})
CGROUPS: Final = Path("/sys/fs/cgroup")
PROC: Final = Path("/proc")
MNT_DETACH: Final = 2  # sys/mount.h
SIOCBRADDBR: Final = 0x89A0  # linux/sockios.h, as the following
SIOCBRDELBR: Final = 0x89A1
SIOCSIFADDR: Final = 0x8916
SIOCSIFNETMASK: Final = 0x891C
SIOCSIFFLAGS: Final = 0x8914
IFF_UP: Final = 1  # linux/if.h


@dataclass(frozen=True, slots=True)
class Place:
    """What an engine with this number has to itself: directories, a bridge, a network, a cgroup."""

    number: int

    @property
    def name(self) -> str:
        return f"gs-{self.number}"

    @property
    def root(self) -> Path:
        """As short as can be: paths of sockets may have 107 characters."""
        return Path("/run") / self.name

    @property
    def lock(self) -> Path:
        return Path("/run") / f"{self.name}.lock"

    @property
    def large(self) -> Path:
        """For images and programs, where /run is a small memory or runs nothing."""
        return Path("/var/tmp") / self.name  # noqa: S108  # claimed by the lock, and root's alone

    @property
    def bridge(self) -> str:
        return self.name

    @property
    def address(self) -> str:
        """Of the bridge; from the addresses set aside for measuring networks (RFC 2544)."""
        return f"198.18.{self.number}.1"

    @property
    def cgroup(self) -> str:
        return f"/{self.name}"

    def claim(self) -> int | None:
        """A descriptor that keeps everybody else away while it is open; None if another has it."""
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its last holder removes the file, and then this is the lock of a name that is gone.
            if self._is_named(descriptor):
                return descriptor
        except BlockingIOError:
            pass
        os.close(descriptor)
        return None

    def give_back(self) -> None:
        """Let others claim it, once every descriptor of the claim is closed."""
        self.lock.unlink(missing_ok=True)

    def prepare(self) -> Path:
        """Make the directories and the bridge; where images and programs are to be kept."""
        status = os.statvfs("/run")
        is_roomy = status.f_bavail * status.f_frsize >= ENOUGH_BYTES
        files = self.root if is_roomy and not status.f_flag & os.ST_NOEXEC else self.large
        for directory in {self.root, files}:
            directory.mkdir(mode=0o711)
        with _control_socket() as control:
            fcntl.ioctl(control, SIOCBRADDBR, self._request())
            for code, address in (
                (SIOCSIFADDR, self.address),
                (SIOCSIFNETMASK, "255.255.255.0"),
            ):
                family = struct.pack("=HH", socket.AF_INET, 0)
                fcntl.ioctl(control, code, self._request(family + socket.inet_aton(address)))
            fcntl.ioctl(control, SIOCSIFFLAGS, self._request(struct.pack("=H", IFF_UP)))
        return files

    def remove(self) -> None:
        """End every process and remove everything. Raises OSError naming what stays."""
        deadline = time.monotonic() + END_SECONDS
        self._end(lambda: self._servers("dockerd"), deadline)
        self._end(self._contained, deadline)
        # While their shims live, they collect the dead at once; others may take their time.
        self._remove_cgroups(min(deadline, time.monotonic() + COLLECT_SECONDS))
        self._end(lambda: self._servers(*PROGRAMS), deadline)
        self._remove_bridge()
        self._remove_shim_sockets()
        self._unmount()
        for directory in (self.root, self.large):
            if directory.exists():
                shutil.rmtree(directory)
        if not self._remove_cgroups(deadline):
            raise OSError(f"{self.name}: cgroups stay: {self._cgroups()}")

    def _end(self, find: Callable[[], Iterator[int]], deadline: float) -> None:
        while pids := list(find()):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() >= deadline:
                raise OSError(f"{self.name}: still running: {pids}")
            time.sleep(POLL_SECONDS)

    def _is_named(self, descriptor: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), self.lock.stat())
        return False

    def _request(self, argument: bytes = b"") -> bytes:
        """The `struct ifreq` of the bridge."""
        return struct.pack("=16s24s", self.bridge.encode(), argument)

    def _servers(self, *programs: str) -> Iterator[int]:
        """The engine and its helpers: programs of these names with our directory on their command
        line.
        """
        for entry in PROC.iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):
                program = (entry / "exe").readlink().name.removesuffix(" (deleted)")
                if program in programs and self._is_mentioned(entry / "cmdline"):
                    yield int(entry.name)

    def _is_mentioned(self, command_line: Path) -> bool:
        return f"{self.root}/".encode() in command_line.read_bytes()

    def _contained(self) -> Iterator[int]:
        """What runs in containers."""
        for directory in self._cgroups():
            for listing in directory.rglob("cgroup.procs"):
                with suppress(OSError):
                    yield from map(int, listing.read_text().split())

    def _cgroups(self) -> list[Path]:
        """One per hierarchy, however many this kernel has mounted."""
        found = [CGROUPS / self.name, *CGROUPS.glob(f"*/{self.name}")]
        return [directory for directory in found if directory.is_dir()]

    def _remove_cgroups(self, deadline: float) -> bool:
        """Whether they were removed in time; one that holds a process which is dead stays."""
        while directories := self._cgroups():
            for directory in directories:
                for inner, _, _ in os.walk(directory, topdown=False):
                    with suppress(OSError):
                        Path(inner).rmdir()
            if time.monotonic() >= deadline:
                return not self._cgroups()
            time.sleep(POLL_SECONDS)
        return True

    def _remove_bridge(self) -> None:
        with _control_socket() as control, suppress(OSError):
            fcntl.ioctl(control, SIOCSIFFLAGS, self._request(struct.pack("=H", 0)))
            fcntl.ioctl(control, SIOCBRDELBR, self._request())

    def shim_sockets(self) -> list[Path]:
        """Those that shims listen on, in a directory which all containerds share.

        Up to version 1 containerd notes each in a file `address`, from version 2 on in another.
        """
        found = []
        for note in self.root.glob("exec/containerd/daemon/*/moby/*/*"):
            with suppress(OSError):
                if note.name == "address":
                    found.append(note.read_text().strip())
                elif note.name == "bootstrap.json":
                    found.append(json.loads(note.read_text())["address"])
        return [Path(address.removeprefix("unix://")) for address in found]

    def _remove_shim_sockets(self) -> None:
        """Shims that are killed leave theirs."""
        for path in self.shim_sockets():
            with suppress(OSError):
                path.unlink()

    def _unmount(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        for point in reversed(self._mount_points()):
            library.umount2(point.encode(), MNT_DETACH)
        # Through one that stays, removing files would reach those of somebody else.
        if points := self._mount_points():
            raise OSError(f"{self.name}: still mounted: {points}")

    def _mount_points(self) -> list[str]:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        points = [line.split()[4] for line in lines]
        return [p for p in points if p.startswith((f"{self.root}/", f"{self.large}/"))]


def _control_socket() -> closing[socket.socket]:
    return closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))


def remove_ownerless() -> None:
    """Remove engines whose test process and watcher have both died."""
    for lock in Path("/run").glob("gs-*.lock"):
        place = Place(int(lock.stem.removeprefix("gs-")))
        if (descriptor := place.claim()) is not None:
            place.remove()
            place.give_back()
            os.close(descriptor)


def watch(place: Place) -> None:
    """Wait for the end of standard input, then remove everything and give the place back."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    place.remove()
    place.give_back()


if __name__ == "__main__":
    watch(Place(int(sys.argv[1])))
