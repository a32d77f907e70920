"""What a process owes the processes around it: it dies with its parent, reports when it is ready,
holds its data alone.
"""

import contextlib
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, Self

import msgspec
from msgspec import Struct

from shared.clock import utcnow
from shared.errors import StewardError
from shared.paths import DataDirectory, lock_file

READY_FILE_VARIABLE: Final = "GPUSTEWARD_READY_FILE"
ENVIRONMENTS_VARIABLE: Final = "GPUSTEWARD_SERVICE_ENVIRONMENTS"  # of several in one process
PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER: Final = 36

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent(
    death_signal: signal.Signals = signal.SIGKILL, *, parent_pid: int | None = None
) -> None:
    """Have the kernel send `death_signal` here when the parent ends, where it can.

    The parent is the *thread* that started this process: a thread that starts processes which must
    live on does it from its main thread. Setting another user id forgets the request, so it comes
    after that. With `parent_pid` given, a parent that was gone before the request ends this process
    at once.
    """
    if _libc is None or _libc.prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0) != 0:
        return
    if parent_pid is not None and os.getppid() != parent_pid:
        os.kill(os.getpid(), death_signal)


def dying_with_parent(death_signal: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """A `preexec_fn` that ties the child about to be started to the calling process."""
    return partial(die_with_parent, death_signal, parent_pid=os.getpid())


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Become the parent of every descendant that loses its own one meanwhile. Linux alone.

    Kept short: who is adopted by chance is a zombie when it has ended, as nobody waits for it.
    """
    _set_subreaper(is_one=True)
    try:
        yield
    finally:
        _set_subreaper(is_one=False)


def _set_subreaper(*, is_one: bool) -> None:
    if _libc is None or _libc.prctl(PR_SET_CHILD_SUBREAPER, int(is_one), 0, 0, 0) != 0:
        raise OSError("expected a kernel that has subreapers, found none")


def give_back_memory() -> None:
    """Return to the kernel what start-up has freed, for a process that is to stay small.

    Modules that were just imported leave megabytes behind that the C library would keep; only glibc
    can be told. In a fork of a process that was frozen for that, shared pages would be copied.
    """
    if gc.get_freeze_count() > 0:
        return
    gc.collect()
    trim_heap()


def trim_heap() -> None:
    """Return to the kernel what has been freed, where it is whole pages."""
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(0)


def notify_ready() -> None:
    """Report to the supervisor that this process answers. Without a supervisor nothing happens.

    By a link to the process, which a full disk takes, as it does not take a file's content.
    """
    if path := os.environ.get(READY_FILE_VARIABLE):
        temporary = Path(f"{path}.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(f"/proc/{os.getpid()}")
        temporary.replace(path)


def forget_ready() -> None:
    """Take back what an earlier process reported at the same place, as in a restarted container."""
    if path := os.environ.get(READY_FILE_VARIABLE):
        Path(path).unlink(missing_ok=True)


def read_ready_pid(ready_path: Path) -> int | None:
    """The process that was the last to call `notify_ready`; None before any did."""
    try:
        return int(ready_path.readlink().name)
    except (OSError, ValueError):
        return None


class LockHolder(Struct, frozen=True, kw_only=True):
    """Who holds a data directory; written into its lock file."""

    pid: int
    started_at: datetime
    command: str
    api_url: str | None = None


class DataDirectoryBusy(StewardError):
    """Another process holds the data directory. `holder` None: it has not written who it is."""

    def __init__(self, directory: Path, holder: LockHolder | None) -> None:
        self.directory = directory
        self.holder = holder
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        if self.holder is None:
            return (
                f"{self.directory} is held by another process; stop it or give another --data-dir"
            )
        where = f", and answers at {self.holder.api_url}" if self.holder.api_url else ""
        return (
            f"{self.directory} is held by process {self.holder.pid} ({self.holder.command}), "
            f"which runs since {self.holder.started_at:%Y-%m-%d %H:%M:%S} UTC{where}; "
            f"use that one, stop it with `kill {self.holder.pid}`, or give another --data-dir"
        )


class DataDirectoryLock:
    """The right to run a platform on a data directory, held until released or the process ends.

    Raises DataDirectoryBusy on acquire if another process has it.
    """

    def __init__(self, directory: DataDirectory, *, command: str | None = None) -> None:
        self.directory = directory
        self._holder = LockHolder(
            pid=os.getpid(),
            started_at=utcnow(),
            command=command or " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        )
        self._descriptor: int | None = None

    def acquire(self) -> Self:
        """Take the lock and write who holds it."""
        descriptor = lock_file(self.directory.lock_path)
        if descriptor is None:
            raise DataDirectoryBusy(self.directory.root, self.current_holder())
        self._descriptor = descriptor
        self._write()
        return self

    def announce(self, api_url: str) -> None:
        """Add to the lock file where the platform answers."""
        self._holder = msgspec.structs.replace(self._holder, api_url=api_url)
        self._write()

    def release(self) -> None:
        """Give the lock up. The file stays: else two processes could lock two files of one name."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def current_holder(self) -> LockHolder | None:
        """Return the holder that the lock file names; None if it is unreadable."""
        try:
            return msgspec.json.decode(self.directory.lock_path.read_bytes(), type=LockHolder)
        except (OSError, msgspec.DecodeError):
            return None

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _write(self) -> None:
        if self._descriptor is None:
            return
        os.ftruncate(self._descriptor, 0)
        # The lock holds without it; on a full disk a second platform is refused without a name.
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, msgspec.json.encode(self._holder), 0)
