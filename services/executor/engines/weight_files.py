"""The files of this host that an engine reads a model's weights from."""

import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from services.executor.engines.mounted_model import MAX_ENTRIES, locate

# Of a directory with several forms engines take the first.
FORMS: Final = (".safetensors", ".bin", ".pt", ".pth")
# A second copy of all, in the form of those who made it.
_CONSOLIDATED: Final = "consolidated"


def weight_files(
    model: str, roots: tuple[Path, ...], hub_caches: Iterable[Path]
) -> tuple[Path, ...]:
    """Return the files of the model's weights by name; empty if the model is not here. Reads its
    directory.

    Raises RefusedError as `locate`, and OSError.
    """
    served = locate(model, roots)
    if not served.mounts:
        cached = (_find_snapshot(model, cache) for cache in hub_caches)
        return next((_of_directory(snapshot) for snapshot in cached if snapshot is not None), ())
    if Path(served.name).is_dir():
        return _of_directory(Path(served.name))
    return tuple(mount.source for mount in served.mounts)


def _find_snapshot(model: str, cache: Path) -> Path | None:
    """Return the newest snapshot of the model that the cache of a hub has downloaded."""
    directory = cache / f"models--{model.replace('/', '--')}"
    with suppress(OSError, ValueError):
        revision = (directory / "refs" / "main").read_text().strip()
        snapshot = directory / "snapshots" / revision
        if revision and snapshot.is_dir() and snapshot.resolve().is_relative_to(cache.resolve()):
            return snapshot
    return None


def _of_directory(directory: Path) -> tuple[Path, ...]:
    with os.scandir(directory) as entries:
        files = sorted(
            Path(entry.path) for entry in islice(entries, MAX_ENTRIES) if entry.is_file()
        )
    for form in FORMS:
        matching_files = [file for file in files if file.suffix == form]
        if matching_files:
            return tuple(_without_copy(matching_files))
    return ()


def _without_copy(files: list[Path]) -> list[Path]:
    other_files = [file for file in files if not file.name.startswith(_CONSOLIDATED)]
    return other_files or files
