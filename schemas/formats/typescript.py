"""TypeScript types, written from the JSON Schema."""

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct, to_builtins

from schemas.base import tag_of
from schemas.catalog import BODIES, COMMANDS, EVENTS, LIVE, MESSAGES, QUERIES
from schemas.formats.json_schema import Json, components, structs
from schemas.orchestrator.experiments import FINISHED_EXPERIMENT_STATES, FINISHED_TASK_STATES
from schemas.scheduler.reservations import LIVE_STATES, PAST_HOLDING_STATES
from schemas.task.objectives import Objective
from schemas.task.stop_words import STOPPED
from schemas.task.strategies import Strategy
from schemas.task.task_file import TaskFile

PLACE: Final = "#/$defs/"
WIDTH: Final = 100
PRIMITIVES: Final = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
HEADER: Final = """\
// Written by `python -m schemas.export schemas/exported`; not to be edited.
// UUIDs and times (RFC 3339, UTC) are strings. What people send may leave out fields that have a
// default (`field?`); what the platform sends has every field, null where nothing is known.
"""
# What the services mean by a group of states, under the name that the page has for it.
STATE_GROUPS: Final[Mapping[str, frozenset[Any]]] = {
    "FINISHED_EXPERIMENT_STATES": FINISHED_EXPERIMENT_STATES,
    "FINISHED_TASK_STATES": FINISHED_TASK_STATES,
    "LIVE_RESERVATION_STATES": LIVE_STATES,
    "PAST_HOLDING_STATES": PAST_HOLDING_STATES,
}


def typescript() -> str:
    """Return every type as an exported interface, tuple or union of literals, enums as values too,
    unions by kind, groups of states, what people read of a literal, and the traits of strategies.
    """
    schemas = components(PLACE)
    sent_by_people: list[type[Struct]] = [*COMMANDS, *QUERIES, *BODIES, TaskFile]
    partial = _closure(schemas, [cls.__name__ for cls in sent_by_people])
    partial |= {cls.__name__ for cls in structs() if cls.__struct_config__.omit_defaults}
    parts = [HEADER]
    parts += [_declaration(name, schema, name in partial) for name, schema in schemas.items()]
    for name, classes in (("Command", COMMANDS), ("Event", EVENTS), ("Live", LIVE)):
        parts.append(_union(f"Any{name}", [cls.__name__ for cls in classes]))
    parts.append(_union("MessageType", [json.dumps(tag_of(cls)) for cls in MESSAGES]))
    parts += [_state_group(name, states) for name, states in STATE_GROUPS.items()]
    stopped = {reason.value: text for reason, text in STOPPED.items()}
    parts.append(
        f"export const STOPPED: Record<StopReason, string> = {json.dumps(stopped, indent=2)};\n"
    )
    strategies = {strategy.value: to_builtins(strategy.traits) for strategy in Strategy}
    parts.append(
        "/** What each strategy does, and which settings of a task it takes. */\n"
        f"export const STRATEGIES = {json.dumps(strategies, indent=2)} as const satisfies"
        " Record<Strategy, Record<string, boolean>>;\n"
    )
    objectives = {objective.value: to_builtins(objective.traits) for objective in Objective}
    parts.append(
        "/** How each objective is measured, and what a task has to have for it. */\n"
        f"export const OBJECTIVES = {json.dumps(objectives, indent=2)} as const satisfies"
        " Record<Objective, object>;\n"
    )
    return "\n".join(parts)


def _closure(schemas: Json, names: Iterable[str]) -> set[str]:
    """The types that these are made of, themselves included."""
    reached: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += _references(schemas[name])
    return reached


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix(PLACE)
        for inner in schema.values():
            yield from _references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _references(inner)


def _declaration(name: str, schema: Json, may_leave_out: bool) -> str:
    comment = _comment(schema.get("description", ""))
    if schema.get("type") == "object" and "properties" in schema:
        required = frozenset(schema.get("required", ())) if may_leave_out else None
        return f"{comment}export interface {name} {{\n{_fields(schema, required)}}}\n"
    if "enum" in schema:
        members = _members_of(name)
        if members is not None:
            return comment + _enumeration(name, members)
        return comment + _union(name, [json.dumps(value) for value in schema["enum"]])
    if "prefixItems" in schema:
        items = "".join(f"  {_item(item)},\n" for item in schema["prefixItems"])
        return f"{comment}export type {name} = [\n{items}];\n"
    return f"{comment}export type {name} = {_type(schema)};\n"


def _fields(schema: Json, required: frozenset[str] | None) -> str:
    lines = []
    for name, field in schema["properties"].items():
        comment = _comment(field.get("description", ""), "  ")
        key = name if re.fullmatch(r"[A-Za-z_$][\w$]*", name) else json.dumps(name)
        mark = "" if required is None or name in required else "?"
        lines.append(f"{comment}  {key}{mark}: {_type(field)};\n")
    return "".join(lines)


def _item(schema: Json) -> str:
    # `type` names the element: a label may be a keyword, but not every checker likes it.
    label = {"type": "tag"}.get(schema["title"], schema["title"])
    return f"{label}: {_type(schema)}"


def _members_of(name: str) -> list[str] | None:
    """Return the values of an enum in the order of its definition, None for another type."""
    enums = (cls for cls in StrEnum.__subclasses__() if cls.__module__.startswith("schemas."))
    members = next((cls for cls in enums if cls.__name__ == name), None)
    return None if members is None else [member.value for member in members]


def _enumeration(name: str, members: list[str]) -> str:
    """Return a list of the values and, under the same name, the type of one of them."""
    return (
        f"{_list(f'export const {name} = ', members)} as const;\n"
        f"export type {name} = (typeof {name})[number];\n"
    )


def _state_group(name: str, states: frozenset[StrEnum]) -> str:
    kind = type(next(iter(states)))
    members = [state.value for state in kind if state in states]
    return f"{_list(f'export const {name}: readonly {kind.__name__}[] = ', members)};\n"


def _list(opening: str, values: list[str]) -> str:
    literals = [json.dumps(value) for value in values]
    line = f"{opening}[{', '.join(literals)}]"
    if len(line) + len(" as const;") <= WIDTH:
        return line
    return f"{opening}[\n" + "".join(f"  {literal},\n" for literal in literals) + "]"


def _union(name: str, members: list[str]) -> str:
    line = f"export type {name} = {' | '.join(members)};\n"
    if len(line) <= WIDTH:
        return line
    return f"export type {name} =\n" + "".join(f"  | {member}\n" for member in members)[:-1] + ";\n"


def _type(schema: Json) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(PLACE)
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " | ".join(dict.fromkeys(_type(option) for option in schema[word]))
    match schema.get("type"):
        case "array":
            return _array(schema)
        case "object":
            inner = schema.get("additionalProperties", {})
            return f"Record<string, {_type(inner) if isinstance(inner, dict) else 'unknown'}>"
        case None:
            return "unknown"
        case primitive:
            return PRIMITIVES[primitive]


def _array(schema: Json) -> str:
    item = _type(schema.get("items") or {})
    return f"({item})[]" if " | " in item else f"{item}[]"


def _comment(text: str, indent: str = "") -> str:
    if not text:
        return ""
    single_line = f"{indent}/** {text} */\n"
    if "\n" not in text and len(single_line) <= WIDTH:
        return single_line
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        lines += ["", *textwrap.wrap(" ".join(paragraph.split()), WIDTH - len(indent) - 3)]
    body = "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines[1:])
    return f"{indent}/**\n{body}{indent} */\n"
