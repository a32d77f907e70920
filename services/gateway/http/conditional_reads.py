"""Answers a read with an ETag, and with 304 where the client has it already (RFC 9110)."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from schemas.base import API
from schemas.gateway import endpoints
from services.gateway.shared_answers import SharedAnswers

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

PREFIX: Final = f"{API}/"
TAG_DIGITS: Final = 32
ROUTE: Final = "path_template"  # where Litestar leaves it in the scope
# Lists that every open page reads anew after an event, all at once.
SHARED_PATHS: Final = frozenset(
    endpoint.address()
    for endpoint in (
        endpoints.LIST_TASKS,
        endpoints.LIST_EXPERIMENTS,
        endpoints.LIST_RESERVATIONS,
        endpoints.LIST_GPUS,
        endpoints.LIST_NODES,
    )
)
_OF_A_BODY: Final = frozenset({b"content-length", b"content-type"})


@dataclass(frozen=True, slots=True)
class _Answer:
    """A whole answer; `tag` is None of a refusal."""

    start: Message
    body: Message
    tag: bytes | None
    route: str | None


@dataclass(frozen=True, slots=True)
class ConditionalReads:
    """ASGI middleware. A tag is a hash of the bytes of an answer: the same on every
    gateway.

    Who asks for the same of `SHARED_PATHS` at about the same time, by the same login, is given one
    answer's bytes.
    """

    application: Application
    _shared: SharedAnswers = field(default_factory=SharedAnswers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_read = scope["type"] == "http" and scope["method"] == "GET"
        if not is_read or not scope["path"].startswith(PREFIX):
            await self.application(scope, receive, send)
        elif scope["path"] not in SHARED_PATHS:
            await self.application(scope, receive, _tag_answer(scope, send))
        else:
            question = (scope["path"], scope["query_string"], scope["state"]["identity"].sight)
            answer = await self._shared.share(question, lambda: self._answer(scope))
            scope[ROUTE] = answer.route
            start, body = answer.start, answer.body
            if answer.tag is not None:
                start, body = _unless_known(start, body, answer.tag, _read_known_tags(scope))
            await send(start)
            await send(body)

    async def _answer(self, scope: Scope) -> _Answer:
        """Have a request of its own answered, which the one that asks may leave."""
        scope = {**scope, "state": dict(scope["state"])}
        messages: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            messages.append(message)

        await self.application(scope, receive, send)
        start, *bodies = messages
        body = b"".join(message.get("body", b"") for message in bodies)
        return _Answer(
            start=start,
            body={"type": "http.response.body", "body": body},
            tag=tag_of(body) if start["status"] == HTTPStatus.OK else None,
            route=scope.get(ROUTE),
        )


def _tag_answer(scope: Scope, send: Send) -> Send:
    held_messages: list[Message] = []  # the start of an answer, until its body is there

    async def send_tagged(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.OK:
            held_messages.append(message)
            return
        if held_messages:
            start = held_messages.pop()
            if not message.get("more_body", False):
                tag = tag_of(message.get("body", b""))
                start, message = _unless_known(start, message, tag, _read_known_tags(scope))
            await send(start)
        await send(message)

    return send_tagged


def tag_of(body: bytes) -> bytes:
    digest = hashlib.sha256(body).hexdigest()[:TAG_DIGITS]
    return f'"{digest}"'.encode()


def tags_in(header: bytes) -> set[bytes]:
    """Return the tags of If-Match or If-None-Match; `*` is one."""
    return {tag.strip().removeprefix(b"W/") for tag in header.split(b",")}


def _read_known_tags(scope: Scope) -> set[bytes]:
    values = (value for name, value in scope["headers"] if name == b"if-none-match")
    return tags_in(b",".join(values))


def _unless_known(
    start: Message, body: Message, tag: bytes, known_tags: set[bytes]
) -> tuple[Message, Message]:
    """Return the answer with its tag, or 304 in its place for a client that has it."""
    headers = [*start["headers"], (b"etag", tag)]
    if not known_tags & {tag, b"*"}:
        return {**start, "headers": headers}, body
    kept = [header for header in headers if header[0].lower() not in _OF_A_BODY]
    return {**start, "status": int(HTTPStatus.NOT_MODIFIED), "headers": kept}, {**body, "body": b""}
