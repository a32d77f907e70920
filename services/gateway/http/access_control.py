"""The outermost layer: who may come in, and with how much."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.gateway import endpoints
from schemas.gateway.tokens import ACCOUNT_HEADER, MAX_BODY_BYTES, Role
from services.gateway.domain.access import (
    CSRF_HEADER,
    FULL_ACCESS,
    READING_METHODS,
    TOKEN_PARAMETER,
    HoldersVisibleTo,
    Identity,
    account_in,
    check_csrf,
    check_host,
    check_origin,
    is_stream,
    is_web_page,
    login_in,
    no_token,
)
from services.gateway.domain.request_rate import RequestRates
from services.gateway.http.conditional_reads import ROUTE
from services.gateway.http.problems import PROBLEM_JSON, REFUSAL, headers_of, problem_in
from services.gateway.http.refused_sign_ins import count_refused
from services.gateway.ledger.audit import AUDIT_ID, AUDIT_STATES, AuditLog
from services.gateway.ledger.tokens import TokenStore
from services.gateway.measurements import Measurements
from services.gateway.sign_in.bearer import BearerTokens
from shared import tracing
from shared.errors import RefusedError, StewardError, UnavailableError
from shared.logging import log
from shared.waiting import cancel_and_wait

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

# No body means an object without fields: what a route requires is then missing by name.
NO_BODY: Final = b"{}"
# A client that is answered before it has sent everything sees a broken connection, not the answer.
MAX_DRAINED_BYTES: Final = 64 << 20
# They say nothing of this installation, or are where a browser or a new server shows first what it
# is admitted by.
OPEN_PATHS: Final = frozenset(
    {
        endpoints.IS_ALIVE.address(),
        endpoints.LOG_IN.address(),
        endpoints.JOIN.address(),
        endpoints.SHOW_SIGN_IN.address(),
        endpoints.START_DEVICE_SIGN_IN.address(),
        endpoints.FINISH_DEVICE_SIGN_IN.address(),
        "/docs",
        "/docs/start.js",
        "/docs/swagger-ui-bundle.js",
        "/docs/swagger-ui.css",
        "/schema/openapi.json",
        "/schema/openapi.yaml",
    }
)
# In the state of a WebSocket: what sends to its client past every layer, once it was accepted.
SEND: Final = "send"
WAITS: Final = b"wait_seconds="
POLICY_VIOLATION: Final = 1008
RIGHTS_SECONDS: Final = 15.0  # together with a recheck's 4 minutes within 5
FIRST_ERROR: Final = 400  # of HTTP statuses
# Of what says nothing else: an answer is data, and no browser is to show or frame it as a page.
SECURITY_HEADERS: Final = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
}


class ClientGone(StewardError):
    """The client left before its request was complete; a part of it must not be acted on."""


@dataclass(frozen=True, slots=True)
class AccessControl:
    """ASGI middleware. Where no token is required, a client without one may do everything."""

    application: Application
    host_names: frozenset[str] | None
    tokens: TokenStore
    bearer: BearerTokens
    audit: AuditLog
    measurements: Measurements
    requests_per_second: float = 0.0
    stream_limits: Mapping[str, int] = field(default_factory=dict)  # by path, in bytes
    holders_visible_to: HoldersVisibleTo = HoldersVisibleTo.NAMESPACE
    _rates: RequestRates = field(default_factory=RequestRates)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self.application(scope, receive, send)
            return
        if scope["type"] == "http":
            if not is_stream(scope) and WAITS not in scope["query_string"]:
                send = self._measure_answer(scope, send)
            send = _with_security_headers(send)
        body: Receive = receive
        try:
            identity = self._with_holder_visibility(
                _with_holder_visibility(await self._admit(scope), scope)
            )
            scope.setdefault("state", {})["identity"] = identity
            self._heed_rate(identity)
            if scope["type"] == "http":
                if scope["path"] in self.stream_limits and scope["method"] == "POST":
                    limit_bytes = identity.body_limit_bytes or self.stream_limits[scope["path"]]
                    _check_length(scope, limit_bytes)
                    body = _stream_within_limit(receive, limit_bytes)
                else:
                    limit_bytes = identity.body_limit_bytes or MAX_BODY_BYTES
                    body = await _within_limit(receive, limit_bytes)
        except ClientGone:
            return
        except (RefusedError, UnavailableError) as error:
            count_refused(self.audit, scope, error)
            await _refuse(scope, receive, send, error)
            return
        if scope["type"] == "websocket":
            scope["state"][SEND] = send
            send = _explain_close(scope, receive, send)
        if is_stream(scope):
            await self._serve_stream(identity, scope, body, send)
            return
        with tracing.serving(f"HTTP {scope['method']}", scope["headers"]):
            await self.application(scope, body, self._record_outcome(scope, send))

    async def _serve_stream(
        self, identity: Identity, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """A stream ends with its token."""
        if not identity.caller:
            await self.application(scope, receive, send)
            return
        with self.tokens.stream(identity) as ended:
            watched = asyncio.ensure_future(self._watch_rights(identity, scope, ended))
            served = asyncio.ensure_future(self.application(scope, receive, send))
            waited = asyncio.ensure_future(ended.wait())
            try:
                await asyncio.wait((served, waited), return_when=asyncio.FIRST_COMPLETED)
                if not served.done():
                    await cancel_and_wait(served)
                    reason = "the token counts no more"
                    close = {"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason}
                    end = {"type": "http.response.body", "body": b"", "more_body": False}
                    await send(close if scope["type"] == "websocket" else end)
            finally:
                await cancel_and_wait(served, waited, watched)

    async def _watch_rights(self, identity: Identity, scope: Scope, ended: asyncio.Event) -> None:
        """End a stream of somebody who signed in at the provider when they may see something else
        than when it began, or nothing any more.
        """
        while identity.provider:
            await asyncio.sleep(RIGHTS_SECONDS)
            try:
                present = await self._admit(scope)
            except RefusedError:
                break
            except UnavailableError:
                continue
            if (present.role, present.namespaces, present.roles) != (
                identity.role,
                identity.namespaces,
                identity.roles,
            ):
                break
        else:
            return
        ended.set()

    def _measure_answer(self, scope: Scope, send: Send) -> Send:
        began_at = time.perf_counter()

        async def send_measured(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                seconds = time.perf_counter() - began_at
                route = scope.get(ROUTE)
                self.measurements.on_request(scope["method"], route, message["status"], seconds)
            await send(message)

        return send_measured

    def _record_outcome(self, scope: Scope, send: Send) -> Send:
        """Has the audit log know the outcome before the client does."""

        async def send_recorded(message: dict[str, Any]) -> None:
            audit_id = scope["state"].get(AUDIT_ID)
            if audit_id is not None and message["type"] == "http.response.start":
                # What was refused has changed nothing that is worth the wait for its owner.
                has_changed = message["status"] < FIRST_ERROR
                states = scope["state"].get(AUDIT_STATES) if has_changed else None
                try:
                    made = dict(message.get("headers", ())).get(b"location", b"").decode()
                    state_before, state_after = (
                        await states(made) if states is not None else (None, None)
                    )
                    await self.audit.end(audit_id, message["status"], state_before, state_after)
                except UnavailableError as error:
                    log.warning("audit_outcome_lost", audit_id=audit_id, error=str(error))
            await send(message)

        return send_recorded

    def _heed_rate(self, identity: Identity) -> None:
        """Raises RefusedError for a token that asks too often."""
        per_second = identity.requests_per_second or self.requests_per_second
        if not identity.caller or not per_second:
            return
        now = asyncio.get_running_loop().time()
        if wait_seconds := self._rates.take(identity.caller, per_second, now):
            raise RefusedError(
                ErrorCode.TOO_MANY_REQUESTS,
                f"expected at most {per_second:g} requests per second of this token, found more",
                details={"retry_after_seconds": round(wait_seconds, 3)},
            )

    def _with_holder_visibility(self, identity: Identity) -> Identity:
        is_open = self.holders_visible_to is HoldersVisibleTo.EVERYBODY
        return replace(identity, sees_all_holders=True) if is_open else identity

    async def _admit(self, scope: Scope) -> Identity:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host")
        check_host(host, self.host_names)
        if scope["type"] == "websocket" or scope["method"] not in READING_METHODS:
            check_origin(headers.get(b"origin"), host)
        if scope["path"] in OPEN_PATHS or is_web_page(scope):
            return Identity(role=Role.VIEWER)
        if (presented := _find_token(scope, headers)) is not None:
            if self.bearer.takes(presented):
                return await self.bearer.identify(presented)
            return await self.tokens.identify(presented)
        if not self.tokens.are_required:
            return FULL_ACCESS
        if (login := login_in(headers.get(b"cookie", ""), host)) is None:
            raise no_token()
        identity = await self.tokens.identify_login(login)
        if scope["type"] == "http" and scope["method"] not in READING_METHODS:
            check_csrf(identity, headers.get(CSRF_HEADER.lower().encode()))
        return identity


def _with_holder_visibility(identity: Identity, scope: Scope) -> Identity:
    header = ACCOUNT_HEADER.lower().encode()
    values = [value for name, value in scope["headers"] if name == header]
    return replace(identity, account=account_in(values[0])) if values else identity


def _with_security_headers(send: Send) -> Send:
    async def send_with_headers(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            header_names = {name.lower() for name, _ in message["headers"]}
            further = (
                header for header in SECURITY_HEADERS.items() if header[0] not in header_names
            )
            message = {**message, "headers": [*message["headers"], *further]}
        await send(message)

    return send_with_headers


def _find_token(scope: Scope, headers: dict[bytes, str]) -> str | None:
    """The bearer token; browsers cannot set headers on a stream and name it in the query."""
    scheme, _, token = headers.get(b"authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    if is_stream(scope):
        for part in scope["query_string"].decode("latin-1").split("&"):
            name, _, value = part.partition("=")
            if name == TOKEN_PARAMETER:
                return str(value)
    return None


async def _within_limit(receive: Receive, limit_bytes: int) -> Receive:
    """The whole body, read ahead. Raises RefusedError if it is too large, ClientGone if cut off."""
    chunks: list[bytes] = []
    size = 0
    more = True
    while more and size <= MAX_DRAINED_BYTES:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        size += len(message.get("body", b""))
        if size <= limit_bytes:
            chunks.append(message.get("body", b""))
        else:
            chunks.clear()
        more = message.get("more_body", False)
    if size > limit_bytes:
        raise RefusedError(
            ErrorCode.TOO_LARGE,
            f"expected a body of at most {limit_bytes} bytes, found more",
        )
    waiting = [{"type": "http.request", "body": b"".join(chunks) or NO_BODY, "more_body": False}]

    async def replay() -> dict[str, Any]:
        return waiting.pop() if waiting else await receive()

    return replay


def _check_length(scope: Scope, limit_bytes: int) -> None:
    """Refuse a body whose header says that it is too large, before any of it is sent: a client that
    expects `100 Continue` sends none.
    """
    values = [value for name, value in scope["headers"] if name == b"content-length"]
    if values and values[0].isdigit() and int(values[0]) > limit_bytes:
        raise _too_large(limit_bytes)


def _too_large(limit_bytes: int) -> RefusedError:
    return RefusedError(
        ErrorCode.TOO_LARGE,
        f"expected a file of at most {limit_bytes} bytes, found more; of an import `gpusteward"
        " export experiment` writes each experiment by itself",
    )


def _stream_within_limit(receive: Receive, limit_bytes: int) -> Receive:
    """The body as it comes; reading it raises RefusedError where it is too large or cut off."""
    size, is_complete = 0, False

    async def receive_limited() -> dict[str, Any]:
        nonlocal size, is_complete
        message = await receive()
        while not is_complete:
            if message["type"] != "http.request":
                raise RefusedError(ErrorCode.BAD_REQUEST, "the body was cut off")
            size += len(message.get("body", b""))
            is_complete = not message.get("more_body", False)
            if size <= limit_bytes:
                break
            if is_complete or size > limit_bytes + MAX_DRAINED_BYTES:
                raise _too_large(limit_bytes)
            message = await receive()
        return message

    return receive_limited


def _explain_close(scope: Scope, receive: Receive, send: Send) -> Send:
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
