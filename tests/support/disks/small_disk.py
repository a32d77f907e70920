"""A file system of its own that a test may fill."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size_mb: int) -> Iterator[Path]:
    """A tmpfs of that size at `place`, gone afterwards. Skips where nothing may be mounted."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a disk to fill is mounted")
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", place],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"needs to mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(place: Path) -> Path:
    """Leave no byte of it free; the file that took the room."""
    filler = place / "filler"
    with filler.open("ab", buffering=0) as file:
        block = b"\0" * (1 << 20)
        while block:
            try:
                file.write(block)
            except OSError:
                block = block[: len(block) // 2]
    return filler


@contextmanager
def every_disk_full() -> Iterator[None]:
    """Every disk counts as full, though all can be written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shared.disk.FULL_BELOW_BYTES", 1 << 62)
        yield
