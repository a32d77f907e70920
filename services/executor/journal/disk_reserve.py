"""Room kept on the disk for the moment when there is none left.

A full disk must not stop an executor from recording that an attempt has ended and that its
devices are free. What is set aside is given up then, and taken again when there is room.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.logging import log

RESERVE_BYTES: Final = 8 << 20
ROOM_FACTOR: Final = 4


@dataclass(frozen=True, slots=True)
class Reserve:
    """A file that holds nothing but its place. No method raises: a reserve is not a need."""

    path: Path
    size_bytes: int = RESERVE_BYTES

    def is_there(self) -> bool:
        """Return whether the reserve's file takes its full size on the disk."""
        try:
            return self.path.stat().st_size >= self.size_bytes
        except OSError:
            return False

    def take(self) -> None:
        """Set the room aside, if the disk has several times as much."""
        if self.is_there():
            return
        try:
            if shutil.disk_usage(self.path.parent).free < ROOM_FACTOR * self.size_bytes:
                return
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self.size_bytes)
            finally:
                os.close(descriptor)
        except OSError as error:
            log.warning("disk_reserve_unavailable", error=str(error))

    def give_up(self) -> bool:
        """Make the room free; whether there was any."""
        try:
            self.path.unlink()
        except OSError:
            return False
        log.error("reserve_given_up", path=str(self.path.parent))
        return True
