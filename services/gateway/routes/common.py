"""What routes have in common: their parameters, dependencies and documented errors."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID, uuid5

import litestar
import msgspec
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.enums import ScopeType
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, PathParameter, QueryParameter, SkipValidation
from litestar.types import Scope
from msgspec import Struct

from schemas.base import (
    LINE_FORM,
    LINE_PATTERN,
    MAX_INTEGER,
    MAX_PAGE,
    NAMESPACE_FORM,
    NAMESPACE_PATTERN,
    NODE_ID_FORM,
    TOKEN_PATTERN,
)
from schemas.errors import ErrorCode
from schemas.gateway.endpoint import Endpoint
from schemas.gateway.problem import Problem
from schemas.gateway.tokens import AuditKind, Role
from services.gateway.audited_state import state_of
from services.gateway.context import Gateway
from services.gateway.domain.access import READING_METHODS, TOKEN_PARAMETER, Identity, is_stream
from services.gateway.domain.audited import State, difference, place_made
from services.gateway.http.problems import PROBLEM_JSON
from services.gateway.http.refused_sign_ins import address_of
from services.gateway.ledger.audit import AUDIT_ID, AUDIT_STATES
from services.gateway.request_bodies import StrictBody
from shared.errors import RefusedError
from shared.ids import new_id
from shared.messaging.paging import cursor_at

E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")
P = TypeVar("P", bound="Place")
AnyConnection = ASGIConnection[Any, Any, Any, Any]


class Place(Struct, frozen=True, array_like=True, order=True):
    """Where something is in a list that the gateway puts together."""


class NodePlace(Place, frozen=True, array_like=True, order=True, tag="node"):
    """By id."""

    node_id: str


class DevicePlace(Place, frozen=True, array_like=True, order=True, tag="device"):
    """By cluster and the name of its resource."""

    cluster_id: str
    key: str
    custom_name: str


class GpuPlace(Place, frozen=True, array_like=True, order=True, tag="gpu"):
    """By node and index."""

    node_id: str
    index: int
    uuid: str


class SummaryPlace(Place, frozen=True, array_like=True, order=True, tag="summary"):
    """By experiment."""

    experiment_id: UUID


TheGateway = NamedDependency[SkipValidation[Gateway]]
Caller = NamedDependency[SkipValidation[Identity]]
ExpectedRevision = NamedDependency[SkipValidation[int | None]]


def whole_number(
    least: int,
    description: str | None = None,
    *,
    parameter: type[QueryParameter | PathParameter] = QueryParameter,
) -> QueryParameter | PathParameter:
    """Declare a whole number with its bounds.

    They are given to the document once more: Litestar rounds the one and drops a 0.
    """
    return parameter(
        ge=least,
        le=MAX_INTEGER,
        schema_extra={"minimum": least, "maximum": MAX_INTEGER},
        description=description,
    )


IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        max_length=200,
        description="The same key with the same body changes nothing a second time.",
    ),
]

InNamespace = Annotated[
    str | None, QueryParameter(pattern=NAMESPACE_PATTERN, description=NAMESPACE_FORM)
]
OfPerson = Annotated[
    str | None, QueryParameter(max_length=200, pattern=LINE_PATTERN, description=LINE_FORM)
]
NamedNamespace = Annotated[
    str, PathParameter(pattern=NAMESPACE_PATTERN, description=NAMESPACE_FORM)
]
GivenReason = Annotated[
    str, QueryParameter(max_length=1000, pattern=LINE_PATTERN, description=LINE_FORM)
]
InStates = Annotated[
    str | None, QueryParameter(name="state", description="A comma-separated list of states.")
]
Rate = Annotated[
    float | None,
    QueryParameter(gt=0, le=100, description="At most so many readings of a node each second."),
]
PageSize = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE, description="At most so many.")]
# Lists that are put together here, and were always answered whole.
AnyPageSize = Annotated[
    int | None, QueryParameter(ge=1, le=MAX_PAGE, description="At most so many; all without.")
]
Cursor = Annotated[
    str | None,
    QueryParameter(
        max_length=1000, description="The `next_cursor` of an earlier answer: what follows it."
    ),
]
Node = Annotated[str, PathParameter(pattern=TOKEN_PATTERN, description=NODE_ID_FORM)]
OnNode = Annotated[str | None, QueryParameter(pattern=TOKEN_PATTERN, description=NODE_ID_FORM)]

# Their neighbours can be computed, in any time zone.
MIN_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_TIME: Final = datetime(9000, 1, 1, tzinfo=UTC)

GATEWAY: Final = "gateway"  # in the state of the application
COMMAND_NAMESPACE: Final = UUID("5d0c53d1-6dd4-4f0a-9d8f-5a7f1f1b6a01")


def _problems(texts: Mapping[int, str]) -> dict[int, ResponseSpec]:
    return {
        status: ResponseSpec(
            Problem, generate_examples=False, description=text, media_type=PROBLEM_JSON
        )
        for status, text in texts.items()
    }


PROBLEMS: Final = _problems(
    {
        400: "A field or parameter is wrong; `path` names it",
        401: "No token, or an unknown one",
        403: "Not with this token, or not from there",
        404: "Unknown",
        409: "Its present state does not allow this",
        413: "Body too large",
        422: "This installation cannot do it",
        429: "More requests than its token may send; try again",
        503: "An owner does not answer; try again",
    }
)
CHANGE_PROBLEMS: Final = PROBLEMS | _problems({412: "Changed since If-Match was read"})

ENDPOINT: Final = "endpoint"  # among the options of a route
_DECORATORS: Final = {"GET": litestar.get, "POST": litestar.post, "DELETE": litestar.delete}
# What a path's parameters are read as; any other is a text, or an id that its route reads.
_CONVERTERS: Final = {
    "index": "int",
    "member_id": "uuid",
    "monitoring_id": "uuid",
    "subject_id": "uuid",
    "token_id": "uuid",
}


def route(endpoint: Endpoint[Any], **options: Any) -> HTTPRouteHandler:
    """Return the decorator for the function that answers an operation of the API."""
    is_read = endpoint.method == "GET"
    body: Any = endpoint.body
    if body not in {None, bytes} and "dto" not in options:
        options["dto"] = StrictBody.__class_getitem__(body)
    decorator: HTTPRouteHandler = _DECORATORS[endpoint.method](
        re.sub(r"{(\w+)}", _with_converter, endpoint.path),
        status_code=endpoint.status,
        opt={ENDPOINT: endpoint},
        **{"responses": PROBLEMS if is_read else CHANGE_PROBLEMS, **options},
    )
    return decorator


def _with_converter(name: re.Match[str]) -> str:
    return f"{{{name[1]}:{_CONVERTERS.get(name[1], 'str')}}}"


def provide_identity(scope: Scope, gateway: TheGateway) -> Identity:  # noqa: ARG001  # its order
    """Whom access control admitted."""
    identity: Identity = scope["state"]["identity"]
    return identity


async def refuse_bad_parameters(connection: AnyConnection, handler: BaseRouteHandler) -> None:
    """A misspelt filter would show everything. Raises RefusedError naming those there are, and for
    what no owner could store or compare.

    A coroutine, because Litestar has a thread run each guard that is none.
    """
    if not connection.scope["query_string"]:
        return
    known_names = query_names(handler)
    accepted = {*known_names, TOKEN_PARAMETER} if is_stream(connection.scope) else known_names
    for name, value in connection.query_params.multi_items():
        if name not in accepted:
            hint = f"known: {', '.join(sorted(known_names))}" if known_names else "it takes none"
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"this route has no such parameter; {hint}",
                path=f"query.{name}",
            )
        if "\0" in value:
            raise RefusedError(
                ErrorCode.BAD_REQUEST, "expected no character NUL", path=f"query.{name}"
            )
        if name.endswith("_at"):
            _refuse_far_time(name, value)


def _refuse_far_time(name: str, value: str) -> None:
    """Refuse a time that is out of range; no time at all is refused as any other value of a wrong
    type.
    """
    try:
        at = msgspec.convert(value, datetime, strict=False)
        is_near = at.tzinfo is None or MIN_TIME <= at <= MAX_TIME
    except msgspec.ValidationError:
        return
    if not is_near:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a time from {MIN_TIME:%Y} to {MAX_TIME:%Y}, got {value}",
            path=f"query.{name}",
        )


async def record_change(connection: AnyConnection, handler: BaseRouteHandler) -> None:
    """Record who is to change what, before it is changed. Raises UnavailableError.

    Access control records the outcome.
    """
    scope: Any = connection.scope
    if scope["type"] == ScopeType.WEBSOCKET or scope["method"] in READING_METHODS:
        return
    if handler.opt[ENDPOINT].is_audited:
        await record_as(scope["state"]["identity"], connection)


async def require_role(connection: AnyConnection, handler: BaseRouteHandler) -> None:
    """Raises RefusedError for a caller whose role an operation does not admit."""
    identity: Identity = connection.scope["state"]["identity"]
    identity.require_role(handler.opt[ENDPOINT].role)


async def record_as(
    identity: Identity, connection: AnyConnection, kind: AuditKind = AuditKind.CHANGE
) -> None:
    """Record what is about to be done on a caller's behalf. Raises UnavailableError."""
    scope: Any = connection.scope
    gateway: Gateway = connection.app.state[GATEWAY]
    scope["state"][AUDIT_ID] = await gateway.audit.begin(
        identity, address_of(scope), scope["method"], scope["path"].replace("\0", ""), kind
    )
    if identity.role is Role.VIEWER:
        return  # it changes nothing: there is nothing to compare
    places = dict(connection.path_params)
    namespace = connection.query_params.get("namespace") or identity.namespace
    if places.keys() & {"secret_name", "dataset_name"}:
        places["namespace"] = namespace
    state_before = await state_of(gateway, places)

    async def states(location: str) -> tuple[State | None, State | None]:
        if made := place_made(location):
            return difference(None, await state_of(gateway, {**made, "namespace": namespace}))
        return difference(state_before, await state_of(gateway, places))

    scope["state"][AUDIT_STATES] = states


def query_names(handler: BaseRouteHandler) -> set[str]:
    """Return the names of a route's query parameters."""
    return {
        getattr(field.kwarg_definition, "name", None) or inside
        for inside, field in handler.parsed_fn_signature.parameters.items()
        if isinstance(field.kwarg_definition, QueryParameter)
    }


def command_id_of(
    idempotency_key: str | None, identity: Identity, namespace: str | None = None
) -> UUID:
    """The command's id: the same again for the same key of the same caller in a namespace.

    No other caller's key leads to it, so that no caller can spend the key of another.
    """
    if idempotency_key is None:
        return new_id()
    scope = uuid5(COMMAND_NAMESPACE, f"{namespace or identity.namespace}/{identity.caller}")
    return uuid5(scope, idempotency_key)


def id_for(command_id: UUID) -> UUID:
    """The id of what a command creates."""
    return uuid5(command_id, "created")


def page_after(
    items: Iterable[T], place: Callable[[T], P], last_place: P | None, limit: int | None
) -> tuple[tuple[T, ...], str | None]:
    """The first `limit` of what follows a place, and the cursor of what follows them.

    `items` are in the order of their places.
    """
    remaining_items = [item for item in items if last_place is None or place(item) > last_place]
    page = remaining_items[:limit]
    return tuple(page), cursor_at(place(page[-1])) if len(page) < len(remaining_items) else None


async def or_none(answer: Awaitable[T]) -> T | None:
    """Return the answer; None if its owner does not know the item."""
    try:
        return await answer
    except RefusedError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return None
        raise


def parse_choices(text: str | None, choices: type[E], name: str) -> tuple[E, ...]:
    """A comma-separated parameter. Raises RefusedError naming the choices."""
    if not text:
        return ()
    try:
        return tuple(choices(part.strip()) for part in text.split(","))
    except ValueError as error:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected some of {', '.join(choices)}, found {text!r}",
            path=f"query.{name}",
        ) from error
