"""What editors and the page of the task file say is of its fields, all of them."""

from typing import Any

import jsonschema_rs
import pytest

from schemas.formats.task_file_schema import field_notes, task_file_schema
from tests.contract.test_task_files import EVERY_BLOCK

SCHEMA = task_file_schema()


def test_every_task_field_has_one_note() -> None:
    blocks = {
        name: set(definition["properties"]) - {"type"}
        for name, definition in SCHEMA["$defs"].items()
        if "properties" in definition
    }
    blocks["StorageSpec"].add("type")  # a field of its own, no tag

    assert {name: set(notes) for name, notes in field_notes().items()} == blocks


@pytest.mark.parametrize("block", field_notes())
def test_every_example_is_valid(block: str) -> None:
    for field, note in field_notes()[block].items():
        of_field = {**SCHEMA["$defs"][block]["properties"][field], "$defs": SCHEMA["$defs"]}
        jsonschema_rs.validate(of_field, note.example)


@pytest.mark.parametrize(
    ("changes", "is_valid"),
    [
        pytest.param({}, True, id="every block"),
        pytest.param({"$schema": "task-file.schema.json"}, True, id="with its schema"),
        pytest.param({"modl": {}}, False, id="a misspelt field"),
        pytest.param({"optimization": {"strategy": "guess"}}, False, id="an unknown strategy"),
    ],
)
def test_an_editor_marks_what_a_submit_refuses(changes: dict[str, Any], is_valid: bool) -> None:
    validator = jsonschema_rs.validator_for(SCHEMA)

    assert validator.is_valid({**EVERY_BLOCK, **changes}) is is_valid
