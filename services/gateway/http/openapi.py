"""The OpenAPI document: routes from Litestar, types from msgspec itself.

Litestar's own rendering of Structs fails on defaults that cannot be hashed.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from litestar import Request
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, YamlRenderPlugin
from litestar.openapi.spec import Components, License, Schema, SecurityScheme, Tag
from litestar.plugins import OpenAPISchemaPlugin
from litestar.typing import FieldDefinition
from typing_extensions import override

from schemas.gateway.endpoint import camel_case

REFERENCE: Final = "#/components/schemas/{name}"
SCHEMA_PATH: Final = "/schema"
TOKEN_SCHEME: Final = "token"  # noqa: S105  # its name in the document
AnyRequest = Request[Any, Any, Any]
TAG: Final = {"schema": {"type": "string"}, "description": "For If-None-Match and If-Match."}
IF_MATCH: Final = {
    "name": "If-Match",
    "in": "header",
    "schema": {"type": "string"},
    "description": "The `ETag` of a read of this address: refused where it has changed since.",
}


class StructSchemas(OpenAPISchemaPlugin):
    """Has Litestar refer to Structs by name, and fills in what the names stand for."""

    def __init__(self) -> None:
        self.structs: set[type[msgspec.Struct]] = set()

    @override
    def is_plugin_supported_field(self, field_definition: FieldDefinition) -> bool:
        return field_definition.is_subclass_of(msgspec.Struct)

    @override
    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Schema:
        struct = field_definition.annotation
        self.structs.add(struct)
        empty: Schema = schema_creator.create_component_schema(
            field_definition, required=[], property_fields={}, title=struct.__name__
        )
        return empty

    def complete(self, document: dict[str, Any]) -> dict[str, Any]:
        """The document with the schemas of everything that it refers to."""
        structs = sorted(self.structs, key=lambda struct: struct.__name__)
        _, schemas = msgspec.json.schema_components(structs, ref_template=REFERENCE)
        components = document.get("components", {})
        merged = {**components.get("schemas", {}), **_describe(schemas)}
        paths = {
            path: _with_conditions(_with_summaries(item))
            for path, item in document["paths"].items()
        }
        return {**document, "paths": paths, "components": {**components, "schemas": merged}}


def _describe(schema: Any) -> Any:
    """Objects whose fields are free say so: tools take a bare `object` for one without fields."""
    if isinstance(schema, list):
        return [_describe(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {name: _describe(inner) for name, inner in schema.items()}
    is_bare = schema.get("type") == "object" and not schema.keys() & {"properties", "$ref"}
    return {"additionalProperties": True, **parts} if is_bare else parts


def _with_conditions(item: dict[str, Any]) -> dict[str, Any]:
    """A read has a tag, which every change at its address takes: middleware sees to both."""
    if "get" not in item:
        return item
    item["get"]["responses"].get("200", {}).setdefault("headers", {})["ETag"] = TAG
    for method, operation in item.items():
        if method != "get" and "412" in operation["responses"]:
            operation["parameters"] = [*operation.get("parameters", []), IF_MATCH]
    return item


def _with_summaries(item: dict[str, Any]) -> dict[str, Any]:
    """An operation's summary is the first line of what its handler says, and the rest is more.

    Litestar gives a 204 content where its handler returns a `Response[None]`.
    """
    parts: dict[str, Any] = {}
    for method, operation in item.items():
        operation["responses"].get("204", {}).pop("content", None)
        first, _, more = operation.get("description", "").partition("\n")
        parts[method] = {**operation, "summary": first.rstrip("."), "description": more.strip()}
    return parts


class _Json(JsonRenderPlugin):
    def __init__(self, structs: StructSchemas) -> None:
        super().__init__(path="/openapi.json")
        self._structs = structs

    @override
    def render(self, request: AnyRequest, openapi_schema: dict[str, Any]) -> bytes:
        return super().render(request, self._structs.complete(openapi_schema))


class _Yaml(YamlRenderPlugin):
    def __init__(self, structs: StructSchemas) -> None:
        super().__init__()
        self._structs = structs

    @override
    def render(self, request: AnyRequest, openapi_schema: dict[str, Any]) -> bytes:
        return super().render(request, self._structs.complete(openapi_schema))


def operation_id(handler: Any, *_: object) -> str:
    """Return the name that an operation has for tools."""
    return camel_case(handler.handler_name)


def openapi_config(structs: StructSchemas, sections: Iterable[Tag]) -> OpenAPIConfig:
    """Files at `/schema`; the page is our own, because Litestar's load scripts from the network."""
    token = SecurityScheme(
        type="http",
        scheme="bearer",
        description="Not needed where the gateway has no tokens, on a loopback address of a host"
        " that nobody else uses. `gpusteward up` says where yours is.",
    )
    return OpenAPIConfig(
        title="GPU Steward",
        version="1",
        description="Reserves GPUs, tunes LLM inference on them, and tells what was measured.",
        license=License(name="Apache-2.0", identifier="Apache-2.0"),
        path=SCHEMA_PATH,
        render_plugins=[_Json(structs), _Yaml(structs)],
        tags=list({section.name: section for section in sections}.values()),
        use_handler_docstrings=True,
        operation_id_creator=operation_id,
        security=[{}, {TOKEN_SCHEME: []}],
        components=Components(security_schemes={TOKEN_SCHEME: token}),
    )
