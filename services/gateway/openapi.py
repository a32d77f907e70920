"""The OpenAPI document: routes from Litestar, types from msgspec itself.

Litestar's own rendering of Structs fails on defaults that cannot be hashed.
"""

from typing import Any, Final

import msgspec
from litestar import Request
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, YamlRenderPlugin
from litestar.openapi.spec import Schema
from litestar.plugins import OpenAPISchemaPlugin
from litestar.typing import FieldDefinition
from typing_extensions import override

REFERENCE: Final = "#/components/schemas/{name}"
AnyRequest = Request[Any, Any, Any]


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

    def completed(self, document: dict[str, Any]) -> dict[str, Any]:
        """The document with the schemas of everything that it refers to."""
        found = sorted(self.structs, key=lambda struct: struct.__name__)
        _, schemas = msgspec.json.schema_components(found, ref_template=REFERENCE)
        components = document.get("components", {})
        merged = {**components.get("schemas", {}), **schemas}
        return {**document, "components": {**components, "schemas": merged}}


class _Json(JsonRenderPlugin):
    def __init__(self, structs: StructSchemas) -> None:
        super().__init__(path="/openapi.json")
        self._structs = structs

    @override
    def render(self, request: AnyRequest, openapi_schema: dict[str, Any]) -> bytes:
        return super().render(request, self._structs.completed(openapi_schema))


class _Yaml(YamlRenderPlugin):
    def __init__(self, structs: StructSchemas) -> None:
        super().__init__()
        self._structs = structs

    @override
    def render(self, request: AnyRequest, openapi_schema: dict[str, Any]) -> bytes:
        return super().render(request, self._structs.completed(openapi_schema))


def openapi_config(structs: StructSchemas) -> OpenAPIConfig:
    """Files at `/schema`, no pages: those load scripts from the network."""
    return OpenAPIConfig(
        title="GPU Steward",
        version="1",
        path="/schema",
        render_plugins=[_Json(structs), _Yaml(structs)],
    )
