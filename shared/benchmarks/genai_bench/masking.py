"""Making a key unreadable in files that a running process still appends to."""

import os
from pathlib import Path


def mask(directory: Path, secret: str) -> None:
    """Overwrite every occurrence in the folder's files in place, by as many asterisks.

    Nothing moves, so a process that appends to such a file is not disturbed. Text in JSON has the
    key with its quotes and backslashes escaped, which is masked as well.
    """
    plain = secret.encode()
    spellings = {plain, plain.replace(b"\\", b"\\\\").replace(b'"', b'\\"')}
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            for spelling in spellings:
                _mask_in(path, spelling)


def _mask_in(path: Path, secret: bytes) -> None:
    content = path.read_bytes()
    descriptor = os.open(path, os.O_WRONLY)
    try:
        at = content.find(secret)
        while at >= 0:
            os.pwrite(descriptor, b"*" * len(secret), at)
            at = content.find(secret, at + len(secret))
    finally:
        os.close(descriptor)
