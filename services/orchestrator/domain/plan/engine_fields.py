"""How the typed blocks of a task become parameters of its engine, by the rules of its offers."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from schemas.executor.engine_rules import EngineRules


class EngineFields(Struct, frozen=True, kw_only=True):
    """What an engine makes of the fields of a typed block.

    `unknown` are those it cannot take: the field, its value, and the values that it could take, if
    any.
    """

    parameters: dict[str, Any]
    notes: tuple[str, ...] = ()
    unknown: tuple[tuple[str, Any, tuple[str, ...]], ...] = ()


def translate_fields(rules: EngineRules, block: str, fields: Mapping[str, Any]) -> EngineFields:
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
    return EngineFields(parameters=parameters, notes=tuple(notes), unknown=tuple(unknown))
