"""Files of this host, read into the kernel's page cache."""

import os
import threading
from pathlib import Path
from typing import Final

CHUNK_BYTES: Final = 64 << 20
_BLOCK_BYTES: Final = 1 << 20
_MAX_NICE: Final = 19


def read_into_page_cache(path: Path, offset: int) -> int:
    """Read up to 64 MiB; how much there was. In a thread of its own, which gets the lowest priority
    for the processor and, where the kernel weighs them, the disk. Raises OSError.

    It reads, as POSIX_FADV_WILLNEED takes no more at once than a device's largest request.
    """
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _MAX_NICE)
    block, done = bytearray(_BLOCK_BYTES), 0
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        while done < CHUNK_BYTES and (count := file.readinto(block)):
            done += count
    return done
