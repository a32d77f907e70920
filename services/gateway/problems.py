"""Every error as RFC 9457 tells it, from one table."""

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
    """What an error is to a client; of one that nobody foresaw only that it happened.

    `names`: how parameters are called outside, where that is not their name inside.
    """
    match error:
        case RefusedError():
            return _problem(error.code, error.message, error.path, instance, error.details)
        case UnavailableError():
            return _problem(ErrorCode.UNAVAILABLE, str(error), None, instance)
        case ValidationException():
            path, message = _first_fault(error.extra, names or {})
            return _problem(ErrorCode.BAD_REQUEST, message, path, instance)
        case NotFoundException():
            return _problem(ErrorCode.NOT_FOUND, "no such route", None, instance)
        case MethodNotAllowedException():
            return _problem(
                ErrorCode.BAD_REQUEST,
                "this route does not take that method",
                None,
                instance,
                status=HTTPStatus.METHOD_NOT_ALLOWED,
            )
        case HTTPException():
            return _http_problem(error, instance)
    return _problem(ErrorCode.INTERNAL, "an unforeseen error; the log tells more", None, instance)


def _http_problem(error: HTTPException, instance: str | None) -> Problem:
    fallback = (
        ErrorCode.INTERNAL
        if error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
        else ErrorCode.BAD_REQUEST
    )
    code = _CODE_OF_STATUS.get(HTTPStatus(error.status_code), fallback)
    return _problem(code, error.detail, None, instance, status=error.status_code)


def _problem(
    code: ErrorCode,
    detail: str,
    path: str | None,
    instance: str | None,
    details: dict[str, Any] | None = None,
    *,
    status: int | None = None,
) -> Problem:
    return Problem(
        type=f"{TYPE_PREFIX}{code.value}",
        title=code.value.replace("_", " ").capitalize(),
        status=status or HTTP_STATUS[code],
        detail=detail,
        code=code.value,
        path=path,
        instance=instance,
        details=details or {},
    )


def _first_fault(extra: Any, names: Mapping[str, str]) -> tuple[str | None, str]:
    """Of the parameters that Litestar found wrong, the first."""
    faults = extra if isinstance(extra, list) else []
    if not faults:
        return None, "a parameter is missing or wrong"
    fault = faults[0]
    source = getattr(fault.get("source"), "value", fault.get("source")) or "query"
    key = names.get(fault.get("key"), fault.get("key"))
    return f"{source}.{key}" if key else None, str(fault.get("message", ""))


def headers_of(problem: Problem, error: Exception) -> dict[str, str]:
    """What goes with a problem: when to come again, how to sign in, which methods there are."""
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
    handler = request.scope.get("route_handler") if isinstance(error, ValidationException) else None
    names = wire_names(handler) if handler is not None else {}
    problem = problem_of(error, request.url.path, names)
    if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("request_failed", path=request.url.path, exc_info=error)
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        media_type=PROBLEM_JSON,
        headers=headers_of(problem, error),
    )


def wire_names(handler: Any) -> dict[str, str]:
    """How a route's parameters are called outside, by their names inside."""
    parameters = handler.parsed_fn_signature.parameters
    return {
        inside: getattr(field.kwarg_definition, "name", None) or inside
        for inside, field in parameters.items()
    }


EXCEPTION_HANDLERS: Final[dict[int | type[Exception], Any]] = {
    HTTPException: answer,
    Exception: answer,
}
