"""The published forms of the messages: current, and fit for their readers."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from schemas import catalog, export
from schemas.base import tag_of
from schemas.task.strategies import Strategy
from tests.contract.make_golden import DIRECTORY as GOLDEN
from tests.contract.make_golden import covered
from tests.support.tables import for_each

EXPORTED = Path(export.__file__).parent / "exported"
WRITE = "python -m schemas.export schemas/exported"


@cache
def texts() -> dict[str, str]:
    return export.export_files()


@cache
def document_of(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(texts()[name])
    return document


def test_committed_files_match_the_messages() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in EXPORTED.iterdir()}

    assert committed == texts(), f"write them anew: {WRITE}"


def test_export_command_needs_a_directory(tmp_path: Path) -> None:
    assert export.main([str(tmp_path / "out")]) == 0
    assert export.main([]) == 2

    assert {p.name for p in (tmp_path / "out").iterdir()} == set(texts())


@for_each("name", covered())
def test_every_golden_message_fits_its_schema(name: str) -> None:
    document = document_of("schema.json")
    message = json.loads((GOLDEN / f"{name}.json").read_text())

    assert misfit(message, document["$defs"][covered()[name].__name__], document["$defs"]) is None


def test_a_message_that_does_not_fit_is_found() -> None:
    document = document_of("schema.json")
    message = json.loads((GOLDEN / "scheduler.cordon.json").read_text())

    place = misfit(message | {"node_id": 7}, document["$defs"]["Cordon"], document["$defs"])

    assert place == "$.node_id"


def test_asyncapi_references_resolve() -> None:
    document, defs = document_of("asyncapi.json"), document_of("schema.json")["$defs"]
    references = re.findall(r'"\$ref": "([^"]+)"', texts()["asyncapi.json"])

    for reference in set(references):
        file, path = reference.split("#/")
        assert file in ("", "schema.json")
        if file:
            assert path.removeprefix("$defs/") in defs
            continue
        place: Any = document
        for key in path.split("/"):
            assert key in place, reference
            place = place[key]


def test_every_message_is_a_channel_and_an_operation() -> None:
    document = document_of("asyncapi.json")

    assert set(document["operations"]) == {tag_of(cls) for cls in catalog.MESSAGES}
    assert set(document["operations"]) <= set(document["channels"])
    for cls in (*catalog.COMMANDS, *catalog.QUERIES):
        assert "reply" in document["operations"][tag_of(cls)]


def test_typescript_names_are_declared_once() -> None:
    text = re.sub(r"/\*\*.*?\*/|//[^\n]*|\"[^\"\n]*\"", "", texts()["messages.ts"], flags=re.DOTALL)

    types = re.findall(r"export (?:interface|type) (\w+)", text)
    values = re.findall(r"export const (\w+)", text)
    used = set(re.findall(r"\b[A-Z]\w+", text)) - {"Record"}

    assert len(types) == len(set(types))
    assert len(values) == len(set(values))
    assert used == {*types, *values}


def test_typescript_enum_keeps_its_order() -> None:
    values = ", ".join(f'"{strategy}"' for strategy in Strategy)

    assert f"export const Strategy = [{values}] as const;" in lines_of("messages.ts")


def test_typescript_state_group_has_its_states() -> None:
    states = '["granted", "active", "releasing"]'
    group = "export const LIVE_RESERVATION_STATES: readonly ReservationState[]"

    assert f"{group} = {states};" in lines_of("messages.ts")


def lines_of(name: str) -> str:
    """Return the file with each declaration in one line."""
    return " ".join(texts()[name].split()).replace("[ ", "[").replace(", ]", "]")


def misfit(value: Any, schema: Any, defs: dict[str, Any], place: str = "$") -> str | None:
    """Where a value leaves the shape of its schema; bounds and patterns are not looked at."""
    if "$ref" in schema:
        return misfit(value, defs[schema["$ref"].removeprefix("#/$defs/")], defs, place)
    if "anyOf" in schema:
        options = [misfit(value, option, defs, place) for option in schema["anyOf"]]
        return None if None in options else max(filter(None, options), key=len)
    if "enum" in schema:
        return None if value in schema["enum"] else place
    fits: dict[str, type | tuple[type, ...]] = {
        "array": list,
        "boolean": bool,
        "integer": int,
        "null": type(None),
        "number": (int, float),
        "object": dict,
        "string": str,
    }
    if "type" in schema and not isinstance(value, fits[schema["type"]]):
        return place
    return next(filter(None, parts(value, schema, defs, place)), None)


def parts(value: Any, schema: Any, defs: dict[str, Any], place: str) -> list[str | None]:
    """What `misfit` says of the members of an object or an array."""
    if isinstance(value, list):
        # An older sender's array is shorter: what was appended since is missing from it.
        positions = schema.get("prefixItems", [])[: len(value)]
        items = positions or [schema.get("items", {})] * len(value)
        return [
            misfit(member, item, defs, f"{place}[{i}]")
            for i, (member, item) in enumerate(zip(value, items, strict=True))
        ]
    if not isinstance(value, dict):
        return []
    missing = [f"{place}.{name}" for name in schema.get("required", ()) if name not in value]
    known, other = schema.get("properties", {}), schema.get("additionalProperties", {})
    return missing + [
        misfit(member, known.get(name, other or {}), defs, f"{place}.{name}")
        for name, member in value.items()
    ]
