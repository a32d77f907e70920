"""Every error as an RFC 9457 problem, from one table.

Built on `Problem` alone: access control answers before Litestar has a request, so that its own
plugin for problem details would be a second form of the same.
"""

import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.enums import ParamType
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.typing import FieldDefinition

from schemas.errors import HTTP_STATUS, ErrorCode
from schemas.gateway.problem import Problem
from shared.errors import NodeUnavailableError, RefusedError, UnavailableError
from shared.logging import log
from shared.problems import choices_of, in_words

PROBLEM_JSON: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1
REFUSAL: Final = "refusal"
TYPE_PREFIX: Final = "urn:gpusteward:problem:"

_MISSING: Final = re.compile(r"Missing required (?P<place>\w+) parameter '(?P<name>[^']+)'")
_CODE_OF_STATUS: Final = {
    HTTPStatus.NOT_FOUND: ErrorCode.NOT_FOUND,
    HTTPStatus.UNAUTHORIZED: ErrorCode.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: ErrorCode.FORBIDDEN,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ErrorCode.TOO_LARGE,
    HTTPStatus.TOO_MANY_REQUESTS: ErrorCode.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE: ErrorCode.UNAVAILABLE,
}


def problem_of(
    error: Exception,
    instance: str | None = None,
    parameters: Mapping[str, FieldDefinition] | None = None,
) -> Problem:
    """Return an error as its client sees it; of an unforeseen one only that it happened.

    `parameters`: those of the handler, by its own names.
    """
    definitions = parameters or {}
    path: str | None = None
    status: int | None = None
    details: dict[str, Any] = {}
    match error:
        case RefusedError():
            code, detail, details = error.code, error.message, error.details
            path = _place_in_request(error.path, definitions)
        case UnavailableError():
            code, detail = ErrorCode.UNAVAILABLE, str(error)
        case ValidationException():
            code = ErrorCode.BAD_REQUEST
            path, detail = _first_fault(error, definitions)
        case NotFoundException():
            code, detail = ErrorCode.NOT_FOUND, "no such route"
        case MethodNotAllowedException():
            code, detail = ErrorCode.BAD_REQUEST, "this route does not take that method"
            status = HTTPStatus.METHOD_NOT_ALLOWED
        case HTTPException():
            status, detail = error.status_code, error.detail
            is_ours = status >= HTTPStatus.INTERNAL_SERVER_ERROR
            fallback = ErrorCode.INTERNAL if is_ours else ErrorCode.BAD_REQUEST
            code = _CODE_OF_STATUS.get(HTTPStatus(status), fallback)
        case _:
            code, detail = ErrorCode.INTERNAL, "an unforeseen error; the log has more"
    return Problem(
        type=f"{TYPE_PREFIX}{code.value}",
        title=code.value.replace("_", " ").capitalize(),
        status=status or HTTP_STATUS[code],
        detail=detail,
        code=code.value,
        path=path,
        instance=instance,
        details=details,
    )


def _first_fault(
    error: ValidationException, parameters: Mapping[str, FieldDefinition]
) -> tuple[str | None, str]:
    """The first parameter that is wrong; only the text of the error names a missing one."""
    if missing := _MISSING.match(error.detail):
        path = f"{missing['place']}.{missing['name']}"
        return path, f"expected the parameter {missing['name']}, found none"
    if not isinstance(error.extra, list) or not error.extra:
        return None, error.detail
    fault = error.extra[0]
    field = parameters.get(fault.get("key"))
    if field is None:
        return None, str(fault.get("message", ""))
    detail = in_words(
        str(fault.get("message", "")),
        choices=choices_of(field.annotation),
        form=getattr(field.kwarg_definition, "description", None),
    )
    return _place(field), detail


def _place_in_request(path: str | None, parameters: Mapping[str, FieldDefinition]) -> str | None:
    """Return the place of a field that an owner refused: in the URL, or in the body as it is.

    An owner is asked with a `request`, which a client gives as the body itself or in the URL.
    """
    if path is None:
        return None
    body = parameters.get("data")
    if body is None or not hasattr(body.annotation, "request"):
        path = path.replace("$.request.", "$.", 1)
    field = parameters.get(path.removeprefix("$."))
    return path if field is None else _place(field)


def _place(field: FieldDefinition) -> str:
    definition = field.kwarg_definition
    place = getattr(definition, "param_type", ParamType.QUERY)
    name = getattr(definition, "name", None) or field.name
    return f"{place.value}.{name}"


def headers_of(problem: Problem, error: Exception) -> dict[str, str]:
    """Retry-After, WWW-Authenticate and Allow, where they belong to the problem."""
    headers = {}
    is_soon_back = not isinstance(error, NodeUnavailableError)
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE and is_soon_back:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if problem.status == HTTPStatus.TOO_MANY_REQUESTS:
        headers["Retry-After"] = str(math.ceil(problem.details["retry_after_seconds"]))
    if problem.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, HTTPException) and error.headers and "Allow" in error.headers:
        headers["Allow"] = error.headers["Allow"]
    return headers


def answer(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Litestar's exception handler for everything."""
    problem = problem_in(request.scope, error)
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        media_type=PROBLEM_JSON,
        headers=headers_of(problem, error),
    )


def problem_in(scope: Any, error: Exception) -> Problem:
    """Return an error as the client of this request sees it; log it if it was not foreseen."""
    handler = scope.get("route_handler")
    parameters = handler.parsed_fn_signature.parameters if handler is not None else {}
    problem = problem_of(error, scope["path"], parameters)
    if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("request_failed", path=scope["path"], exc_info=error)
    return problem


async def remember_refusal(error: Exception, scope: Any) -> None:
    """Litestar only closes a WebSocket; access control answers its opening with the problem."""
    if scope["type"] == "websocket":
        scope["state"][REFUSAL] = error


EXCEPTION_HANDLERS: Final[dict[int | type[Exception], Any]] = {
    HTTPException: answer,
    Exception: answer,
}
