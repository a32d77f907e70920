"""Which engine a task names, and how its typed blocks become flags of that engine.

The executors' offers say which engines there are and what their flags are called.
"""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from schemas.task import DeploymentMode, TaskFile


class Flags(Struct, frozen=True, kw_only=True):
    """Engine flags of one configuration; `unknown` are fields that the engine has no flag for."""

    parameters: dict[str, Any]
    unknown: tuple[str, ...] = ()


def engine_of(base_runtime: str, known: Collection[str]) -> str | None:
    """The engine that a `base_runtime` names, case ignored; None if it is none of `known`."""
    if base_runtime in known:
        return base_runtime
    name = base_runtime.casefold()
    return next((engine for engine in known if engine.casefold() == name), None)


def mode_of(task: TaskFile, known: Collection[str]) -> DeploymentMode:
    """The deployment mode that the task says or, saying none, means."""
    if task.deployment_mode is not None:
        return task.deployment_mode
    has_cluster_block = (
        task.clusterbasemodel_config is not None
        or task.clusterservingruntime_config is not None
        or (task.storage is not None and task.storage.type == "pvc")
    )
    if has_cluster_block or engine_of(task.base_runtime, known) is None:
        return DeploymentMode.OME
    return DeploymentMode.DOCKER


def flags_of(flags: Mapping[str, str], block: str, fields: Mapping[str, Any]) -> Flags:
    """The flags for a point of `quant_config` or `parallel_config`; `flags` are the engine's.

    Values that mean "as the engine does it by itself" (`auto`, a degree of 1) need no flag.
    """
    parameters: dict[str, Any] = {}
    unknown = []
    for field, value in fields.items():
        if value in ("auto", 1):
            continue
        if field in flags:
            parameters[flags[field]] = value
        else:
            unknown.append(f"{block}.{field}")
    return Flags(parameters=parameters, unknown=tuple(unknown))
