"""Request bodies, JSON or YAML, decoded as strictly as messages of the bus."""

from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec
from litestar.dto import AbstractDTO, DTOFieldDefinition
from litestar.openapi.spec import Reference, Schema
from litestar.typing import FieldDefinition
from typing_extensions import override

from schemas.errors import ErrorCode
from schemas.task.task_file import TaskFile
from services.gateway.context import require_encodable
from shared.errors import RefusedError, together
from shared.problems import explain_validation_error
from shared.task_files.form import form_of
from shared.yaml_documents import InvalidYamlError, json_of_yaml

T = TypeVar("T")

YAML: Final = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})


def decode_strictly(body: bytes, type_: type[T]) -> T:
    """A JSON body. Raises RefusedError with the offending field's path."""
    try:
        decoded: T = msgspec.json.decode(body, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if not isinstance(error, msgspec.DecodeError):
            raise RefusedError(ErrorCode.BAD_REQUEST, f"unreadable JSON: {error}") from error
        path, message = explain_validation_error(error, type_, body)
        raise RefusedError(ErrorCode.BAD_REQUEST, message, path=path) from error
    require_encodable(decoded)
    return decoded


def decode_task(body: bytes) -> TaskFile:
    """A task file, which may have short forms. Raises RefusedError with all of its mistakes."""
    try:
        return decode_strictly(body, TaskFile)
    except RefusedError:
        form = form_of(body)
        if form.mistakes:
            raise together(form.mistakes) from None
        if form.body == body:
            raise
        return decode_strictly(form.body, TaskFile)


def _json_of(body: bytes, content_type: str) -> bytes:
    """Raises RefusedError."""
    if content_type.partition(";")[0].strip().lower() not in YAML:
        return body
    try:
        return json_of_yaml(body)
    except InvalidYamlError as error:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"unreadable YAML: {error}") from error


class StrictBody(AbstractDTO[T]):
    """Has Litestar decode `data` with `decode_strictly`; its own way takes "7" for a number."""

    @classmethod
    @override
    def create_for_field_definition(
        cls, field_definition: FieldDefinition, handler_id: str, backend_cls: Any = None
    ) -> None:
        """Generate nothing: requests are decoded into the type itself."""

    @classmethod
    @override
    def create_openapi_schema(
        cls, field_definition: FieldDefinition, handler_id: str, schema_creator: Any
    ) -> Reference | Schema:
        schema: Reference | Schema = schema_creator.for_field_definition(field_definition)
        return schema

    @override
    def decode_bytes(self, value: bytes) -> Any:
        content_type = self.asgi_connection.headers.get("content-type", "")
        body = _json_of(value, content_type)
        if self.model_type is TaskFile:
            return decode_task(body)
        return decode_strictly(body, self.model_type)

    @classmethod
    @override
    def generate_field_definitions(cls, model_type: type[Any]) -> Iterator[DTOFieldDefinition]:  # type: ignore[override]  # never asked for
        yield from ()

    @classmethod
    @override
    def detect_nested_field(cls, field_definition: FieldDefinition) -> bool:
        return False
