"""How much room a disk has, and when that counts as none."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.errors import UnavailableError

# Postgres takes room for its log of writes in segments of this size, and ends without the next one.
FULL_BELOW_BYTES: Final = 16 << 20
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """What an unprivileged user may still write below `path`."""

    path: Path
    free_bytes: int
    total_bytes: int
    has_free_files: bool = True

    @property
    def is_full(self) -> bool:
        return self.free_bytes < FULL_BELOW_BYTES or not self.has_free_files

    def __str__(self) -> str:
        free, total = self.free_bytes >> 20, self.total_bytes >> 20
        files = "" if self.has_free_files else ", and no file may be added"
        return f"{free} MB of {total} MB are free below {self.path}{files}"


def room_at(path: Path) -> DiskRoom:
    """The room of the file system that holds `path`, or will. Raises OSError."""
    usage = _usage_of(path)
    return DiskRoom(
        path,
        free_bytes=usage.f_bavail * usage.f_frsize,
        total_bytes=usage.f_blocks * usage.f_frsize,
        has_free_files=usage.f_files == 0 or usage.f_favail > 0,
    )


def _usage_of(path: Path) -> os.statvfs_result:
    """Ask the kernel at once: requests do, each of them, and the directory is there."""
    try:
        return os.statvfs(path)
    except (FileNotFoundError, NotADirectoryError):
        return _usage_of(path.parent)


def is_full(path: Path) -> bool:
    """True if the disk of `path` is known to be full."""
    try:
        return room_at(path).is_full
    except OSError:
        return False


def reports_no_room(error: BaseException) -> bool:
    """True if the kernel refused to write for lack of room."""
    return isinstance(error, OSError) and error.errno in NO_ROOM


def require_room(path: Path) -> None:
    """Raises UnavailableError where new work would take the last room from what runs."""
    if is_full(path):
        raise UnavailableError(
            f"the disk is full, and new work is refused until there is room: {room_at(path)}"
        )
