"""The engines that a task can name, and how one begins with them."""

from typing import Any

from msgspec import Struct

from schemas.base import View
from schemas.task.task_file import DeploymentMode


class EngineFlag(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A flag that a task may give an engine.

    `form` says in words what its value may be. `help` and `default` are empty for a flag that no
    note explains; `default` is a value, or what decides it.
    """

    name: str
    form: str
    help: str = ""
    default: str = ""
    choices: tuple[str, ...] = ()


class EngineChoice(Struct, frozen=True, kw_only=True):
    """An engine of this release. The rest is how a first task of it begins.

    `flags` are first those with a note, then the others by name; `version` is the one that they
    were read from, empty for a server of this platform.
    """

    name: str
    title: str
    simulated: bool
    version: str
    model: str
    deployment_mode: DeploymentMode
    parameters: dict[str, Any]
    flags: tuple[EngineFlag, ...]


class EngineList(View, frozen=True, kw_only=True, tag="gateway.engines"):
    """Every engine of this release, by name."""

    engines: tuple[EngineChoice, ...]
