"""Engines of an operator's own, and images for the known ones, from a TOML file.

Each table `[engines.NAME]` is one engine in a container. A known NAME changes what is given of its
row, such as the image of a mirror; any other is a row of its own. A task only names it.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from schemas.base import PositiveInt
from services.executor.engines.engine import Engine
from services.executor.engines.engine_table import ENGINES, IMAGES
from services.executor.engines.image import CODE_REFUSAL, EngineImage, HostMount, is_tag
from shared.settings import SettingsError
from shared.visible_devices import ROCM_VARIABLES

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
# A repository without tag and digest, with or without a registry's host and port before it.
Repository = Annotated[
    str, Meta(pattern=r"^([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*$", max_length=255)
]
Port = Annotated[int, Meta(ge=1, le=65535)]
# What a task in a container must never reach, whatever holds it.
_ENGINE_SOCKETS: Final = ("/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman")


class EnginesFileError(SettingsError):
    """The file of engines cannot be used; the text names the file, the engine and the field."""


class MountEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A directory or file of the host, always read-only."""

    source: str
    target: str


class EngineEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine. What is not given stays as in the known row, or is the default of a new one.

    `entrypoint` replaces the image's, `arguments` come first. An empty `model_flag` puts the model
    in front, without a flag; an empty one of the others leaves it out. `tls_flags` name the files
    of its key and of its certificate, for HTTPS. `owned` are parameters that
    a task must not set, beside the address, the model and its name; `loads_code` those that have
    the engine load code, refused unless `allow_loaded_code`. `allow` are parameters that a task may
    give besides those on the known engine's list, "*" for all; it holds for the engine as a process
    too.
    """

    image: Repository | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    entrypoint: tuple[str, ...] | UnsetType = UNSET
    arguments: tuple[str, ...] | UnsetType = UNSET
    port: Port | UnsetType = UNSET
    model_flag: str | UnsetType = UNSET
    served_name_flag: str | UnsetType = UNSET
    host_flag: str | UnsetType = UNSET
    port_flag: str | UnsetType = UNSET
    tls_flags: tuple[str, str] | UnsetType = UNSET
    readiness_path: Annotated[str, Meta(pattern=r"^/")] | UnsetType = UNSET
    negative_switches: bool | UnsetType = UNSET
    owned: tuple[str, ...] | UnsetType = UNSET
    loads_code: tuple[str, ...] | UnsetType = UNSET
    allow_loaded_code: bool | UnsetType = UNSET
    allow: tuple[str, ...] = ()
    env: dict[str, str] | UnsetType = UNSET
    mounts: tuple[MountEntry, ...] | UnsetType = UNSET
    shm_mb: PositiveInt | UnsetType = UNSET
    simulated: bool | UnsetType = UNSET


class EnginesFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    engines: dict[Name, EngineEntry] = {}


def load_images(path: str) -> Mapping[str, EngineImage]:
    """Return every engine in a container by name: the built-in ones, changed and extended by the
    file.

    An empty path changes nothing. Raises EnginesFileError.
    """
    images = dict(IMAGES)
    for name, entry in _read(path).engines.items():
        try:
            images[name.lower()] = _image(name.lower(), entry)
        except ValueError as error:
            raise EnginesFileError(f"{path}: [engines.{name}]: {error}") from error
    return images


def load_engines(path: str) -> Mapping[str, Engine]:
    """The engines as processes of this host, with what the file allows tasks to give them.

    Raises EnginesFileError.
    """
    allowed = {
        name.lower(): set(_names(entry.allow)) for name, entry in _read(path).engines.items()
    }
    return {
        name: replace(engine, allowed=engine.allowed | allowed.get(name, set()))
        for name, engine in ENGINES.items()
    }


def _read(path: str) -> EnginesFile:
    if not path:
        return EnginesFile()
    try:
        return msgspec.convert(tomllib.loads(Path(path).read_text()), EnginesFile)
    except (OSError, ValueError) as error:
        raise EnginesFileError(f"{path}: {error}") from error


def _image(name: str, entry: EngineEntry) -> EngineImage:
    base_image = IMAGES.get(name)
    row = base_image if base_image is not None else _new_row(name, entry)
    changes: dict[str, Any] = {
        "repository": entry.image,
        "tag": entry.tag,
        "port": entry.port,
        "entrypoint": entry.entrypoint,
        "shm_mb": entry.shm_mb,
        "mounts": entry.mounts
        if entry.mounts is UNSET
        else tuple(_mount(mount) for mount in entry.mounts),
    }
    image = replace(row, engine=_engine(row.engine, entry), **_drop_unset(changes))
    if not is_tag(image.tag):
        raise ValueError(f"expected an image's tag, got {image.tag!r}")
    return image


def _new_row(name: str, entry: EngineEntry) -> EngineImage:
    absent = [field for field in ("image", "tag", "port") if getattr(entry, field) is UNSET]
    if absent:
        raise ValueError(f"expected {', '.join(absent)}")
    engine = Engine(
        name=name,
        program=(),
        missing=lambda: None,
        owned=frozenset(),
        name_flag=None,
        code_refusal=CODE_REFUSAL,
    )
    return EngineImage(engine=engine, repository=None, tag="", port=0)


def _engine(engine: Engine, entry: EngineEntry) -> Engine:
    changed = replace(
        engine,
        **_drop_unset(
            {
                "program": entry.arguments,
                "model_flag": _flag(entry.model_flag),
                "name_flag": _flag(entry.served_name_flag),
                "host_flag": _flag(entry.host_flag),
                "port_flag": _flag(entry.port_flag),
                "tls_flags": entry.tls_flags
                if entry.tls_flags is UNSET
                else tuple(filter(None, map(_flag, entry.tls_flags))),
                "readiness_path": entry.readiness_path,
                "has_negative_switches": entry.negative_switches,
                "simulated": entry.simulated,
            }
        ),
    )
    loads_code = engine.loads_code | set(_names(entry.loads_code))
    code = loads_code if entry.allow_loaded_code is True else frozenset[str]()
    return replace(
        changed,
        owned=engine.owned | set(_names(entry.owned)) | set(_address_names(changed)),
        loads_code=loads_code,
        allowed=engine.allowed | set(_names(entry.allow)) | code,
        env=(*engine.env, *_environment(entry)),
    )


def _drop_unset(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in changes.items() if value is not UNSET}


def _flag(text: str | UnsetType) -> str | UnsetType | None:
    if text is UNSET:
        return UNSET
    if text and not text.startswith("-"):
        raise ValueError(f"expected a flag that begins with '-', got {text!r}")
    return text or None


def _names(names: tuple[str, ...] | UnsetType) -> Iterator[str]:
    for name in () if names is UNSET else names:
        yield name.lstrip("-").replace("_", "-")


def _address_names(engine: Engine) -> Iterator[str]:
    """Parameters by which a task could set what the executor sets."""
    flags = (engine.model_flag, engine.hub_flag, engine.name_flag)
    for flag in (*flags, engine.host_flag, engine.port_flag):
        if flag is not None:
            yield flag.lstrip("-").replace("_", "-")


def _environment(entry: EngineEntry) -> Iterator[tuple[str, str]]:
    for name, value in () if entry.env is UNSET else sorted(entry.env.items()):
        if name.startswith("GPUSTEWARD_") or name in {*ROCM_VARIABLES, "NVIDIA_VISIBLE_DEVICES"}:
            raise ValueError(f"expected no variable that the executor sets, got {name!r} in env")
        yield name, value


def _mount(entry: MountEntry) -> HostMount:
    source, target = Path(entry.source), Path(entry.target)
    if not source.is_absolute() or not target.is_absolute() or ".." in target.parts:
        raise ValueError(f"expected absolute paths in mounts, got {entry.source!r}")
    real_path = source.resolve()
    for socket in _ENGINE_SOCKETS:
        # With the socket of the container engine a container is root on the host.
        if Path(socket).is_relative_to(real_path) or real_path.is_relative_to(socket):
            raise ValueError(f"expected a mount without {socket}, got {entry.source!r}")
    return HostMount(source=real_path, target=str(target))
