"""What a task may give to an engine, as executors offer it."""

from enum import StrEnum
from typing import Any

from msgspec import Struct


class ParameterKind(StrEnum):
    """How a parameter's value is written."""

    INTEGER = "integer"
    NUMBER = "number"
    SWITCH = "switch"
    CHOICE = "choice"


class EngineParameter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A parameter of known form, under its hyphenated name."""

    name: str
    kind: ParameterKind
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()


class TaskField(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an engine takes a field of a task's `quant_config` or `parallel_config`, or what it needs
    to answer its benchmark's requests.

    Its value becomes that of the parameter `flag`, or the parameters that `values` has for it; for
    the reason `note` these may be none. What the field `implied_by` says with the same value is not
    said again. A task that sets one of the parameters `instead_of` says it itself.
    """

    flag: str | None = None
    values: dict[str, dict[str, Any]] = {}
    note: str = ""
    implied_by: str | None = None
    instead_of: tuple[str, ...] = ()


class EngineRules(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task may give to an engine.

    With `is_closed` there are no parameters beside `parameters`. `refused` are those that are not a
    task's to set, by the reason. Of the others it may give those on the list named `allow_list`
    (shared/engines; empty: none, None: whatever the engine knows), and those in `allowed`
    by the operator's word, in which "*" is all.
    """

    parameters: tuple[EngineParameter, ...] = ()
    is_closed: bool = False
    refused: dict[str, tuple[str, ...]] = {}
    task_fields: dict[str, TaskField] = {}
    allow_list: str | None = None
    allowed: tuple[str, ...] = ()
