"""All engines, made of the profiles in this package's folders."""

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from typing import Final

import shared.engines
from shared.engines.allow_list import AllowList
from shared.engines.launch import EngineLaunch
from shared.engines.profile import EngineProfile


def _read_profiles() -> dict[str, EngineProfile]:
    folders = sorted(
        item.name for item in pkgutil.iter_modules(shared.engines.__path__) if item.ispkg
    )
    profiles = [import_module(f"shared.engines.{folder}.profile").PROFILE for folder in folders]
    return {profile.name: profile for profile in profiles}


PROFILES: Final[Mapping[str, EngineProfile]] = _read_profiles()
ALLOW_LISTS: Final[Mapping[str, AllowList]] = {
    profile.allow_list.name: profile.allow_list
    for profile in PROFILES.values()
    if profile.allow_list is not None
}
# What a task may set of an engine's environment where an operator says nothing else.
TASK_VARIABLES: Final = (
    *(pattern for profile in PROFILES.values() for pattern in profile.task_variables),
    "NCCL_*",
)
# How people start an engine that anybody can install.
LAUNCHES: Final[Mapping[str, EngineLaunch]] = {
    name: profile.launch
    for name, profile in PROFILES.items()
    if profile.launch.repository is not None
}
