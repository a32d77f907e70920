"""Refuses a change of what is no longer what its client has read (RFC 9110, If-Match)."""

from http import HTTPStatus
from typing import Any, Final

import msgspec
from litestar.handlers import BaseRouteHandler
from litestar.types import Scope

from schemas.errors import ErrorCode
from services.gateway.domain.access import READING_METHODS
from services.gateway.http.conditional_reads import tag_of, tags_in
from services.gateway.routes.common import AnyConnection, Caller
from shared.errors import RefusedError

REVISION: Final = "expected_revision"


class _RevisionOnly(msgspec.Struct, frozen=True):
    revision: int | None = None


async def heed_if_match(connection: AnyConnection, _: BaseRouteHandler) -> None:
    """Raises RefusedError where a read of the same address, by the same caller, is answered by
    nothing or by something else.

    What changes between this and the change itself its owner refuses, by the revision that was
    read.
    """
    scope: Any = connection.scope
    if scope["type"] != "http" or scope["method"] in READING_METHODS:
        return
    if (if_match := connection.headers.get("if-match")) is None:
        return
    body = await _present(connection.app, scope)
    tags = tags_in(if_match.encode("latin-1"))
    if body is None or not tags & {tag_of(body), b"*"}:
        raise RefusedError(
            ErrorCode.CHANGED_SINCE,
            "expected what If-Match names, found it changed since it was read: read it again",
        )
    if b"*" not in tags:
        scope["state"][REVISION] = msgspec.json.decode(body, type=_RevisionOnly).revision


def provide_expected_revision(scope: Scope, identity: Caller) -> int | None:  # noqa: ARG001  # its order
    """Return the revision that If-Match names; None if it names none, or nothing that has one."""
    revision: int | None = scope["state"].get(REVISION)
    return revision


async def _present(application: Any, scope: Any) -> bytes | None:
    """Return the answer of a read of the same address; None without an answer."""
    copied_keys = (
        "asgi",
        "http_version",
        "scheme",
        "server",
        "client",
        "root_path",
        "path",
        "raw_path",
    )
    read = {
        **{name: scope[name] for name in copied_keys if name in scope},
        "type": "http",
        "method": "GET",
        "query_string": b"",
        "headers": [],
        "extensions": {},
        "state": {"identity": scope["state"]["identity"]},
    }
    status, body = 0, b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    await application(read, receive, send)
    return body if status == HTTPStatus.OK else None
