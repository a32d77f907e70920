"""Giving back the space of a file's beginning, while others go on appending to its end."""

import ctypes
import os
import sys
from typing import Final

BLOCK_BYTES: Final = 4096
KEEP_SIZE_AND_PUNCH_HOLE: Final = 0x01 | 0x02  # linux/falloc.h

_fallocate = ctypes.CDLL(None, use_errno=True).fallocate if sys.platform == "linux" else None
if _fallocate is not None:
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def free_before(descriptor: int, end: int) -> None:
    """Free the blocks before offset `end`; every other byte stays where it is.

    Where the file system knows no holes the file is cut to nothing, made as long again, and what
    follows `end` is put back: what is appended in that very moment is lost. Raises OSError.
    """
    end -= end % BLOCK_BYTES
    if end and (_fallocate is None or _fallocate(descriptor, KEEP_SIZE_AND_PUNCH_HOLE, 0, end)):
        _write_anew(descriptor, end)


def first_data(descriptor: int, begin: int) -> int:
    """Return the offset of the first byte that takes space, from `begin` on; the file's size if
    none.
    """
    try:
        return os.lseek(descriptor, begin, os.SEEK_DATA)
    except OSError:
        return os.fstat(descriptor).st_size


def write_all(descriptor: int, data: bytes, position: int) -> None:
    """Raises OSError, with the beginning of `data` written perhaps."""
    remaining_data = memoryview(data)
    while remaining_data:
        written = os.pwrite(descriptor, remaining_data, position)
        remaining_data, position = remaining_data[written:], position + written


def _write_anew(descriptor: int, begin: int) -> None:
    size = os.fstat(descriptor).st_size
    kept = os.pread(descriptor, size - begin, begin)
    os.ftruncate(descriptor, 0)
    os.ftruncate(descriptor, size)
    write_all(descriptor, kept, begin)
