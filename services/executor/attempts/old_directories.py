"""Forgets what attempts of long ago left on disk."""

import shutil
from pathlib import Path


def remove_older(directory: Path, cutoff: float) -> None:
    """Remove what has not been touched since `cutoff`, in seconds since the epoch."""
    if not directory.is_dir():
        return
    for entry in directory.iterdir():
        if entry.stat().st_mtime < cutoff:
            shutil.rmtree(entry, ignore_errors=True)
