"""What of a file the kernel has in memory."""

import ctypes
import mmap
import os
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)


def resident_bytes(path: Path) -> int:
    """In whole pages, without reading any of it."""
    size = path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        told = (ctypes.c_ubyte * pages)()
        failed = _libc.mincore(ctypes.byref(first), ctypes.c_size_t(size), told)
        del first  # or the mapping cannot be closed
        if failed:
            raise OSError(ctypes.get_errno(), "mincore")
        return sum(each & 1 for each in told) * mmap.PAGESIZE


def forget(path: Path) -> bool:
    """Whether the kernel let go of it; a file system in memory does not."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return resident_bytes(path) == 0
