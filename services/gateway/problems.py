"""Every error as an RFC 9457 problem, from one table.

Built on `Problem` alone: the guard answers before Litestar has a request, so that its own plugin
for problem details would be a second form of the same.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)

from schemas.errors import HTTP_STATUS, ErrorCode
from schemas.gateway import Problem
from shared.errors import RefusedError, UnavailableError
from shared.logging import log

PROBLEM_JSON: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1
REFUSAL: Final = "refusal"
TYPE_PREFIX: Final = "urn:gpusteward:problem:"

_CODE_OF_STATUS: Final = {
    HTTPStatus.NOT_FOUND: ErrorCode.NOT_FOUND,
    HTTPStatus.UNAUTHORIZED: ErrorCode.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: ErrorCode.FORBIDDEN,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ErrorCode.TOO_LARGE,
    HTTPStatus.SERVICE_UNAVAILABLE: ErrorCode.UNAVAILABLE,
}


def problem_of(
    error: Exception, instance: str | None = None, names: Mapping[str, str] | None = None
) -> Problem:
    """What an error is to a client; of an unforeseen one only that it happened.

    `names`: what clients call the parameters of the handler.
    """
    path: str | None = None
    status: int | None = None
    details: dict[str, Any] = {}
    match error:
        case RefusedError():
            code, detail, path, details = error.code, error.message, error.path, error.details
        case UnavailableError():
            code, detail = ErrorCode.UNAVAILABLE, str(error)
        case ValidationException():
            code = ErrorCode.BAD_REQUEST
            path, detail = _first_fault(error, names or {})
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


def _first_fault(error: ValidationException, names: Mapping[str, str]) -> tuple[str | None, str]:
    """The first parameter that is wrong; only the text of the error names a missing one."""
    if not isinstance(error.extra, list) or not error.extra:
        return None, error.detail
    fault = error.extra[0]
    source = getattr(fault.get("source"), "value", fault.get("source")) or "query"
    key = names.get(fault.get("key"), fault.get("key"))
    return f"{source}.{key}" if key else None, str(fault.get("message", ""))


def headers_of(problem: Problem, error: Exception) -> dict[str, str]:
    """Retry-After, WWW-Authenticate and Allow, where they belong to the problem."""
    headers = {}
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
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
    """What an error is to the client of this request; logged if it was not foreseen."""
    handler = scope.get("route_handler") if isinstance(error, ValidationException) else None
    problem = problem_of(error, scope["path"], wire_names(handler) if handler is not None else {})
    if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("request_failed", path=scope["path"], exc_info=error)
    return problem


async def remember_refusal(error: Exception, scope: Any) -> None:
    """Litestar only closes a WebSocket; the guard answers its opening request with the problem."""
    if scope["type"] == "websocket":
        scope["state"][REFUSAL] = error


def wire_names(handler: Any) -> dict[str, str]:
    """What clients call a route's parameters, by the handler's names."""
    parameters = handler.parsed_fn_signature.parameters
    return {
        inside: getattr(field.kwarg_definition, "name", None) or inside
        for inside, field in parameters.items()
    }


EXCEPTION_HANDLERS: Final[dict[int | type[Exception], Any]] = {
    HTTPException: answer,
    Exception: answer,
}
