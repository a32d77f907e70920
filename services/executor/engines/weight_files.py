"""The files of this host that an engine reads a model's weights from."""

import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from services.executor.engines.mounted_model import MOST_ENTRIES, locate

# Of a directory with several forms engines take the first.
FORMS: Final = (".safetensors", ".bin", ".pt", ".pth")
# A second copy of all, in the form of those who made it.
_CONSOLIDATED: Final = "consolidated"


def weight_files(
    model: str, roots: tuple[Path, ...], hub_caches: Iterable[Path]
) -> tuple[Path, ...]:
    """In the order of their names; none if the model is not here. Reads its directory.

    Raises RefusedError as `locate`, and OSError.
    """
    served = locate(model, roots)
    if not served.mounts:
        cached = (_cached(model, cache) for cache in hub_caches)
        return next((_of_directory(each) for each in cached if each is not None), ())
    if Path(served.name).is_dir():
        return _of_directory(Path(served.name))
    return tuple(mount.source for mount in served.mounts)


def _cached(model: str, cache: Path) -> Path | None:
    """Where the cache of a hub has the newest of the model that it has downloaded."""
    directory = cache / f"models--{model.replace('/', '--')}"
    with suppress(OSError, ValueError):
        revision = (directory / "refs" / "main").read_text().strip()
        snapshot = directory / "snapshots" / revision
        if revision and snapshot.is_dir() and snapshot.resolve().is_relative_to(cache.resolve()):
            return snapshot
    return None


def _of_directory(directory: Path) -> tuple[Path, ...]:
    with os.scandir(directory) as entries:
        files = sorted(Path(each.path) for each in islice(entries, MOST_ENTRIES) if each.is_file())
    for form in FORMS:
        found = [each for each in files if each.suffix == form]
        if found:
            return tuple(_without_copy(found))
    return ()


def _without_copy(files: list[Path]) -> list[Path]:
    others = [each for each in files if not each.name.startswith(_CONSOLIDATED)]
    return others or files
