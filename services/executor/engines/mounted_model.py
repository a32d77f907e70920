"""A model as an engine finds it: files of this host below a model root, or an id of a hub."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schemas.errors import ErrorCode
from services.executor.engines.image import HostMount
from shared.engines.models import model_refusal
from shared.errors import RefusedError

MODEL_FIELD: Final = "$.model.id_or_path"
MAX_ENTRIES: Final = 20_000
_PART: Final = re.compile(r"(.+)-\d{5}-of-(\d{5})(\.[A-Za-z0-9]+)")


@dataclass(frozen=True, slots=True)
class ServedModel:
    """`name` is what the engine gets: a path, the same inside as outside, or an id."""

    name: str
    mounts: tuple[HostMount, ...] = ()


def locate(model: str, roots: tuple[Path, ...]) -> ServedModel:
    """Find where the model lies; a path has to lie in one of the roots, wherever links lead.

    What is mounted is the model alone: a file with the other parts of it, or the least directory
    that holds the model and all that its links lead to, as in the cache of a hub. Reads the
    directory.

    Raises RefusedError for a path outside of the roots, and for a model with a link out of them.
    """
    for root in roots:
        base = root.resolve()
        try:
            inside = (base / model).resolve()
            is_there, is_named = inside.exists(), os.path.lexists(base / model)
        except (OSError, ValueError, RuntimeError) as error:  # the last for links in a circle
            raise _refusal(f"expected a model that can be looked up: {error}") from error
        if is_there and inside.is_relative_to(base):
            return _file(base / model, base) if inside.is_file() else _directory(inside, base)
        if is_named:
            raise _refusal(f"expected a model inside {base}, {model!r} leads to {inside}")
    refusal = model_refusal(model, tuple(map(str, roots)))
    if refusal is None and model.startswith(("/", ".")):
        refusal = (
            f"expected a model inside {', '.join(map(str, roots))}, found nothing at {model!r}"
        )
    if refusal is not None:
        raise _refusal(refusal)
    return ServedModel(model)


def _refusal(message: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=MODEL_FIELD)


def _inside(path: Path, base: Path) -> Path:
    """Resolve the path. Raises RefusedError if that leads outside of `base`."""
    real_path = path.resolve()
    if not real_path.is_relative_to(base):
        raise _refusal(f"expected a model inside {base}, {path} leads to {real_path}")
    return real_path


def _file(model: Path, base: Path) -> ServedModel:
    """Return a model of files, each part under its own name, by which an engine finds the
    others.
    """
    directory = _inside(model.parent, base)
    mounts = tuple(
        HostMount(source=_inside(part, base), target=str(part)) for part in _parts(directory, model)
    )
    return ServedModel(str(directory / model.name), mounts)


def _parts(directory: Path, model: Path) -> list[Path]:
    part = _PART.fullmatch(model.name)
    if part is None:
        return [directory / model.name]
    stem, count, suffix = part.groups()
    names = (f"{stem}-{number:05}-of-{count}{suffix}" for number in range(1, int(count) + 1))
    return [directory / name for name in names if (directory / name).is_file()]


def _directory(model: Path, base: Path) -> ServedModel:
    paths = [model, *(_inside(link, base) for link in _links(model))]
    common = os.path.commonpath(paths)
    return ServedModel(str(model), (HostMount(source=Path(common), target=common),))


def _links(directory: Path) -> Iterator[Path]:
    entry_count = 0
    for above, names, files in os.walk(directory):
        entry_count += len(names) + len(files)
        if entry_count > MAX_ENTRIES:
            raise _refusal(f"expected a model of at most {MAX_ENTRIES} files in {directory}")
        yield from (path for name in (*names, *files) if (path := Path(above, name)).is_symlink())
