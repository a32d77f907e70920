"""Which engine a task names, and how its typed blocks become parameters of that engine.

The executors' offers list the engines and what a task may give them.
"""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from schemas.executor.engine_rules import EngineRules
from schemas.task.task_file import DeploymentMode, TaskFile


class FieldsTaken(Struct, frozen=True, kw_only=True):
    """What an engine makes of the fields of a typed block.

    `unknown` are those it cannot take: the field, its value, and the values that it could take, if
    any.
    """

    parameters: dict[str, Any]
    notes: tuple[str, ...] = ()
    unknown: tuple[tuple[str, Any, tuple[str, ...]], ...] = ()


def engine_of(base_runtime: str, known: Collection[str]) -> str | None:
    """The engine that a `base_runtime` names, case ignored; None if it is none of `known`."""
    if base_runtime in known:
        return base_runtime
    name = base_runtime.casefold()
    return next((engine for engine in known if engine.casefold() == name), None)


def mode_of(task: TaskFile, known: Collection[str]) -> DeploymentMode:
    """The deployment mode that the task sets or, setting none, implies."""
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


def fields_taken(rules: EngineRules, block: str, fields: Mapping[str, Any]) -> FieldsTaken:
    """The parameters for a point of `quant_config` or `parallel_config`.

    Values that mean "as the engine does it by itself" (`auto`, a degree of 1) need none.
    """
    parameters: dict[str, Any] = {}
    notes: list[str] = []
    unknown: list[tuple[str, Any, tuple[str, ...]]] = []
    for field, value in fields.items():
        if value is not True and value in ("auto", 1, False):
            continue
        rule = rules.task_fields.get(field)
        if rule is None:
            unknown.append((field, value, ()))
        elif rule.flag is not None:
            parameters[rule.flag] = value
        elif value not in rule.values:
            unknown.append((field, value, ("auto", *rule.values)))
        elif rule.implied_by is None or fields.get(rule.implied_by) != value:
            parameters |= rule.values[value]
            notes += [] if rule.values[value] else [f"{block}.{field} {value!r}: {rule.note}"]
    return FieldsTaken(parameters=parameters, notes=tuple(notes), unknown=tuple(unknown))
