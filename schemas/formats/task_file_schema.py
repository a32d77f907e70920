"""The task file as a JSON Schema, for editors: they complete its fields and say what they mean."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from schemas.task.task_file import TaskFile

Json = dict[str, Any]
TITLE: Final = "GPU Steward task file"


class FieldNote(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a field means, with its unit, and an example of its value."""

    means: str
    example: Any


@cache
def field_notes() -> dict[str, dict[str, FieldNote]]:
    """Return the notes by block and field."""
    text = Path(__file__).with_name("task_fields.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, dict[str, FieldNote]])


def task_file_schema() -> Json:
    """Return the schema with the meaning, unit and an example of every field."""
    schema: Json = msgspec.json.schema(TaskFile)
    for block, notes in field_notes().items():
        properties = schema["$defs"][block]["properties"]
        for field, note in notes.items():
            properties[field] |= {"description": note.means, "examples": [note.example]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": TITLE, **schema}
