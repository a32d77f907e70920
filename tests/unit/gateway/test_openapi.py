"""The document of the HTTP API, as tools and people read it."""

import re
from collections.abc import Iterator
from math import inf
from typing import Any, cast

import pytest

from schemas.base import MAX_INTEGER
from services.gateway.app import create_app
from services.gateway.context import Gateway
from services.gateway.http.openapi import StructSchemas

# Whatever a client or an engine puts there.
FREE = {
    "estimate",
    "AuditEntry.after",
    "AuditEntry.before",
    "BenchmarkConfig.additional_params",
    "CustomEventRequest.data",
    "DecisionRecord.inputs",
    "DeviceConfigCheck.config_maps",
    "DecisionRecord.outcomes",
    "EngineChoice.parameters",
    "EngineSpec.parameters",
    "ExperimentDetail.parameters",
    "FrontPoint.parameters",
    "Leader.parameters",
    "ParameterChange.baseline",
    "ParameterChange.best",
    "PlannedExperiment.parameters",
    "PresetConfig.config_overrides",
    "Problem.details",
    "ReplayedDecision.recorded",
    "ReplayedDecision.replayed",
    "ReportedExperiment.parameters",
    "StoredEvent.event",
    "SummaryView.benchmark",
    "TaskField.values",
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    app = create_app(cast(Gateway, None))
    structs = next(plugin for plugin in app.plugins if isinstance(plugin, StructSchemas))
    return structs.complete(app.openapi_schema.to_schema())


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By method and path."""
    return {
        f"{method} {path}": operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


def test_operations_are_named_tagged_and_told(document: dict[str, Any]) -> None:
    found = operations(document)
    ids = [operation["operationId"] for operation in found.values()]
    tags = {tag["name"] for tag in document["tags"]}

    assert found["get /api/v1/tasks"]["operationId"] == "listTasks"
    assert found["get /api/v1/tasks/{task_id}"]["operationId"] == "getTask"
    assert [each for each in ids if not re.fullmatch(r"[a-z]+([A-Z][a-z]+)*", each)] == []
    assert len(set(ids)) == len(ids)
    assert {tag for operation in found.values() for tag in operation["tags"]} == tags
    assert [each for each, operation in found.items() if not operation["summary"]] == []


def test_an_answer_without_content_promises_none(document: dict[str, Any]) -> None:
    found = operations(document)
    empty = {each for each, told in found.items() if "204" in told["responses"]}

    assert "post /api/v1/logout" in empty
    assert [each for each in empty if "content" in found[each]["responses"]["204"]] == []


def test_token_is_an_optional_security_scheme(
    document: dict[str, Any],
) -> None:
    scheme = document["components"]["securitySchemes"]["token"]

    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert document["security"] == [{}, {"token": []}]


def test_every_object_says_what_is_in_it(document: dict[str, Any]) -> None:
    free = {name for name, schema in _objects(document) if not _is_typed(schema)}
    answer = operations(document)["get /api/v1/experiments"]["responses"]["200"]

    assert free == FREE
    assert answer["content"]["application/json"]["schema"]["$ref"].endswith("/ExperimentDetails")
    detail = document["components"]["schemas"]["ExperimentDetail"]["properties"]
    assert {"gpu_monitoring", "benchmark", "explanation", "missing"} <= set(detail)


def test_every_whole_number_is_bounded(document: dict[str, Any]) -> None:
    unbounded = {
        f"{name}: {schema}"
        for name, operation in operations(document).items()
        for schema in _integers(
            [operation.get("parameters"), operation.get("requestBody")], document, set()
        )
        if not (
            schema.get("minimum", -inf) >= -MAX_INTEGER
            and schema.get("maximum", inf) <= MAX_INTEGER
        )
    }

    assert unbounded == set()


def _integers(schema: Any, document: dict[str, Any], seen: set[str]) -> Iterator[dict[str, Any]]:
    """Every schema of a whole number in a part of the document, and in what it refers to."""
    if isinstance(schema, list):
        for inner in schema:
            yield from _integers(inner, document, seen)
    if isinstance(schema, dict):
        if schema.get("type") == "integer":
            yield schema
        # What may also be null has its bounds beside the choice.
        outer = {name: schema[name] for name in ("minimum", "maximum") if name in schema}
        if (reference := schema.get("$ref")) and reference not in seen:
            seen.add(reference)
            name = reference.rpartition("/")[2]
            yield from _integers(document["components"]["schemas"][name], document, seen)
        for name, inner in schema.items():
            if name == "oneOf":
                inner = [{**outer, **each} for each in inner]
            yield from _integers(inner, document, seen)


def _is_typed(schema: dict[str, Any]) -> bool:
    """Whether the fields are known, or all are of a known type."""
    return bool(schema.get("properties")) or bool(
        schema.get("additionalProperties", True) not in (True, {})
    )


def _objects(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema of an object, or of anything, by what it is a part of."""
    for name, schema in document["components"]["schemas"].items():
        for part, inner in schema.get("properties", {}).items():
            for found in _within(inner):
                yield f"{name}.{part}", found
    for operation in operations(document).values():
        for found in _within([operation.get("requestBody"), operation["responses"]]):
            yield operation["operationId"], found


def _within(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, list):
        for inner in schema:
            yield from _within(inner)
    if isinstance(schema, dict):
        if schema.get("type") == "object" or not schema.keys() - {"default", "description"}:
            yield schema
        for name, inner in schema.items():
            if name not in {"default", "enum", "headers"}:
                yield from _within(inner)
