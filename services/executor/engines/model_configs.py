"""What the models of this host have in their config.json."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from schemas.executor.model_shape import ModelShape
from services.executor.settings import ExecutorSettings
from shared.accelerator_rules.precision import precisions_of_model
from shared.errors import RefusedError
from shared.gpu.model_shapes import shape_of_model
from shared.logging import log
from shared.waiting import within

HUB_CACHES: Final = ("HF_HOME", "HF_HUB_CACHE")
CONFIG: Final = "config.json"
MAX_MODELS: Final = 300
MAX_ENTRIES: Final = 5_000
MAX_CONFIG_BYTES: Final = 1 << 20
SCAN_SECONDS: Final = 2.0
_CACHED: Final = "models--"  # as caches of a hub name the directory of ORGANIZATION/NAME


def model_directories(settings: ExecutorSettings, variables: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the directories of this host that may hold models: the roots and the caches of
    hubs.
    """
    return (*settings.model_root_paths, *hub_caches(settings, variables))


def hub_caches(settings: ExecutorSettings, variables: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the directories in which engines keep the models they download."""
    homes = (settings.model_cache_dir, variables.get("HF_HOME"))
    caches = (variables.get("HF_HUB_CACHE"), *(f"{home}/hub" for home in homes if home))
    return tuple(Path(cache) for cache in caches if cache)


class ModelFacts(Struct, frozen=True, kw_only=True):
    precisions: tuple[str, ...] = ()
    shape: ModelShape | None = None


class ModelConfigs:
    """Those of the models below directories, read anew for every report of the executor.

    A directory that does not answer, such as one of a server that is away, holds up no report:
    what was read before counts meanwhile.
    """

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self._roots = roots
        self._known: dict[str, ModelFacts] = {}
        self._scan: asyncio.Task[dict[str, ModelFacts]] | None = None

    async def read_models(self) -> dict[str, ModelFacts]:
        """Return the models by the name that a task gives them."""
        if self._scan is None:
            self._scan = asyncio.create_task(asyncio.to_thread(scan, self._roots))
        try:
            async with within(SCAN_SECONDS):
                self._known = await asyncio.shield(self._scan)
        except TimeoutError:
            log.info("models_not_read", seconds=SCAN_SECONDS)
            return self._known
        self._scan = None
        return self._known


def scan(roots: tuple[Path, ...]) -> dict[str, ModelFacts]:
    """Models whose config.json is understood: at most 300, one or two levels below a root."""
    models: dict[str, ModelFacts] = {}
    for root in roots:
        for name, directory in islice(_models(root), MAX_ENTRIES):
            if len(models) == MAX_MODELS:
                return models
            if name.isprintable() and name not in models and (model := _read(directory)):
                models[name] = model
    return models


def _models(root: Path) -> Iterator[tuple[str, Path]]:
    for above in _directories(root):
        if above.name.startswith(_CACHED):
            name = above.name.removeprefix(_CACHED).replace("--", "/", 1)
            yield from ((name, snapshot) for snapshot in _directories(above / "snapshots"))
        else:
            yield above.name, above
            yield from (
                (f"{above.name}/{directory.name}", directory) for directory in _directories(above)
            )


def _directories(above: Path) -> list[Path]:
    with suppress(OSError), os.scandir(above) as entries:
        first_entries = islice(entries, MAX_ENTRIES)
        return sorted(Path(entry.path) for entry in first_entries if entry.is_dir())
    return []


def _read(directory: Path) -> ModelFacts | None:
    """Return what is known of the model in this directory; None if nothing is."""
    try:
        with (directory / CONFIG).open("rb") as file:
            config = file.read(MAX_CONFIG_BYTES)
    except OSError:
        return None
    precisions: tuple[str, ...] = ()
    with suppress(RefusedError, RecursionError):
        precisions = tuple(precision.name for precision in precisions_of_model(config))
    model = ModelFacts(precisions=precisions, shape=shape_of_model(config))
    return model if model != ModelFacts() else None
