"""JSON Schema of every type that travels."""

import inspect
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from schemas.catalog import BODIES, MESSAGES, PUBLIC, REPLIES
from schemas.errors import Accepted, Refused
from schemas.task.task_file import TaskFile

Json = dict[str, Any]


def roots() -> tuple[type[Struct], ...]:
    """Messages, answers, the gateway's shapes and the task file, each once, in that order."""
    listed: tuple[type[Struct], ...] = (
        *MESSAGES,
        *REPLIES.values(),
        *PUBLIC,
        *BODIES,
        Accepted,
        Refused,
        TaskFile,
    )
    return tuple(dict.fromkeys(listed))


def components(place: str) -> Json:
    """The schemas of all roots and what they refer to, by class name.

    `place` is what a reference starts with.
    """
    _, components = msgspec.json.schema_components(roots(), ref_template=f"{place}{{name}}")
    classes = {cls.__name__: cls for cls in structs()}
    return {name: _tidy(components[name], classes.get(name)) for name in sorted(components)}


def json_schema() -> Json:
    """Return one document; a message is validated against `#/$defs/<class name>`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "GPU Steward messages",
        "description": "Messages travel as msgpack and are shown as JSON; the shape is the same.",
        "$defs": components("#/$defs/"),
    }


def _tidy(schema: Mapping[str, Any], cls: type[Struct] | None) -> Json:
    """`schema` with a clean description and, where it is positional, with the fields' names."""
    tidy = dict(schema)
    if "description" in tidy:
        # A docstring speaks of Python's None; the reader of a schema sees null.
        tidy["description"] = re.sub(r"\bNone\b", "null", inspect.cleandoc(tidy["description"]))
    if "prefixItems" in tidy and cls is not None:
        config = cls.__struct_config__
        tag = [config.tag_field] if config.tag_field is not None else []
        tidy["prefixItems"] = [
            {"title": name, **item}
            for name, item in zip(
                [*tag, *cls.__struct_encode_fields__], tidy["prefixItems"], strict=True
            )
        ]
    return tidy


def structs() -> set[type[Struct]]:
    """Return every Struct that the roots consist of, themselves included."""
    visited: set[type[Struct]] = set()

    def visit(kind: Any) -> None:
        if isinstance(kind, msgspec.inspect.StructType):
            if kind.cls in visited:
                return
            visited.add(kind.cls)
            for field in kind.fields:
                visit(field.type)
            return
        for part in ("type", "item_type", "key_type", "value_type"):
            if isinstance(inner := getattr(kind, part, None), msgspec.inspect.Type):
                visit(inner)
        for inner in (*getattr(kind, "types", ()), *getattr(kind, "item_types", ())):
            visit(inner)

    for cls in roots():
        visit(msgspec.inspect.type_info(cls))
    return visited
