"""Errors of GPUs and NVSwitches in the kernel's log, as far as it may be read."""

import contextlib
import os
import select
from typing import Final

from services.telemetry.domain.xid import KernelSxid, KernelXid, parse_kernel_record

KERNEL_LOG: Final = "/dev/kmsg"
MAX_RECORDS: Final = 1000
_RECORD_BYTES: Final = 8192


class KernelLog:
    """Each read of /dev/kmsg gives one record, and never waits. Starts behind what is there."""

    def __init__(self, path: str = KERNEL_LOG) -> None:
        self._path = path
        self._file: int | None = None
        self._readable = select.poll()

    def open(self) -> None:
        """Open the log; without the permission nothing is read from then on."""
        self.close()
        with contextlib.suppress(OSError):
            self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with contextlib.suppress(OSError):
                os.lseek(self._file, 0, os.SEEK_END)
            self._readable.register(self._file, select.POLLIN)

    def read(self) -> list[KernelXid | KernelSxid]:
        """Return the errors of at most a thousand records that were logged since the last call."""
        errors: list[KernelXid | KernelSxid] = []
        for _ in range(MAX_RECORDS):
            if self._file is None or not self._readable.poll(0):
                break
            try:
                record = os.read(self._file, _RECORD_BYTES)
            except BrokenPipeError:
                continue  # records were overwritten before they were read; the next is there
            except OSError:
                self.close()
                break
            if not record:
                break
            error = parse_kernel_record(record.decode(errors="replace"))
            if error is not None:
                errors.append(error)
        return errors

    def close(self) -> None:
        """Stop reading."""
        if self._file is not None:
            self._readable.unregister(self._file)
            os.close(self._file)
            self._file = None
