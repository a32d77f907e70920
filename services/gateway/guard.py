"""The outermost layer: who may come in, and with how much."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from schemas.errors import ErrorCode
from schemas.tokens import Role, Token
from services.gateway.domain.access import (
    EVERYTHING,
    READING_METHODS,
    TOKEN_PARAMETER,
    Identity,
    check_host,
    check_origin,
    identify,
)
from services.gateway.problems import PROBLEM_JSON, REFUSAL, headers_of, problem_in
from shared.errors import RefusedError, StewardError

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

# No body means an object without fields: what a route requires is then missing by name.
NO_BODY: Final = b"{}"
LARGEST_BODY_BYTES: Final = 1 << 20
# A client that is answered before it has sent everything sees a broken connection, not the answer.
LARGEST_DRAINED_BYTES: Final = 64 << 20
# They say nothing of this installation; a browser that opens the page cannot send a token yet.
OPEN_PATHS: Final = frozenset(
    {
        "/healthz",
        "/docs",
        "/docs/start.js",
        "/docs/swagger-ui-bundle.js",
        "/docs/swagger-ui.css",
        "/schema/openapi.json",
        "/schema/openapi.yaml",
    }
)
POLICY_VIOLATION: Final = 1008


class ClientGone(StewardError):
    """The client left before its request was complete; a part of it must not be acted on."""


@dataclass(frozen=True, slots=True)
class Guard:
    """ASGI middleware. Without tokens everybody who reaches the gateway may do everything."""

    application: Application
    host_names: frozenset[str] | None
    tokens: Sequence[Token]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self.application(scope, receive, send)
            return
        body: Receive = receive
        try:
            scope.setdefault("state", {})["identity"] = self._admit(scope)
            if scope["type"] == "http":
                body = await _within_limit(receive)
        except ClientGone:
            return
        except RefusedError as error:
            await _refuse(scope, receive, send, error)
            return
        is_socket = scope["type"] == "websocket"
        await self.application(scope, body, _explained(scope, receive, send) if is_socket else send)

    def _admit(self, scope: Scope) -> Identity:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host")
        check_host(host, self.host_names)
        if scope["type"] == "websocket" or scope["method"] not in READING_METHODS:
            check_origin(headers.get(b"origin"), host)
        if not self.tokens or scope["path"] in OPEN_PATHS:
            return EVERYTHING if not self.tokens else Identity(role=Role.VIEWER)
        return identify(self.tokens, _presented(scope, headers))


def _presented(scope: Scope, headers: dict[bytes, str]) -> str | None:
    """The bearer token; browsers cannot set headers on a WebSocket and name it in the query."""
    scheme, _, token = headers.get(b"authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    if scope["type"] == "websocket":
        for part in scope["query_string"].decode("latin-1").split("&"):
            name, _, value = part.partition("=")
            if name == TOKEN_PARAMETER:
                return str(value)
    return None


async def _within_limit(receive: Receive) -> Receive:
    """The whole body, read ahead. Raises RefusedError if it is too large, ClientGone if cut off."""
    chunks: list[bytes] = []
    size = 0
    more = True
    while more and size <= LARGEST_DRAINED_BYTES:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        size += len(message.get("body", b""))
        if size <= LARGEST_BODY_BYTES:
            chunks.append(message.get("body", b""))
        else:
            chunks.clear()
        more = message.get("more_body", False)
    if size > LARGEST_BODY_BYTES:
        raise RefusedError(
            ErrorCode.TOO_LARGE,
            f"expected a body of at most {LARGEST_BODY_BYTES} bytes, found more",
        )
    waiting = [{"type": "http.request", "body": b"".join(chunks) or NO_BODY, "more_body": False}]

    async def replay() -> dict[str, Any]:
        return waiting.pop() if waiting else await receive()

    return replay


def _explained(scope: Scope, receive: Receive, send: Send) -> Send:
    """Sends a problem in place of the close of a WebSocket that was never accepted."""

    async def send_explained(message: dict[str, Any]) -> None:
        error = scope["state"].pop(REFUSAL, None)
        if message["type"] == "websocket.close" and error is not None:
            await _refuse(scope, receive, send, error)
        else:
            await send(message)

    return send_explained


async def _refuse(scope: Scope, receive: Receive, send: Send, error: Exception) -> None:
    problem = problem_in(scope, error)
    headers = {"content-type": PROBLEM_JSON, **headers_of(problem, error)}
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            reason = problem.detail[:100]
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
            return
        kind = "websocket.http.response"
    body = msgspec.json.encode(problem)
    await send({"type": f"{kind}.start", "status": problem.status, "headers": encoded})
    await send({"type": f"{kind}.body", "body": body})
