"""Answers a read with an ETag, and with 304 where the client has it already (RFC 9110)."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from schemas.base import API

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

PREFIX: Final = f"{API}/"
TAG_DIGITS: Final = 32
_OF_A_BODY: Final = frozenset({b"content-length", b"content-type"})


@dataclass(frozen=True, slots=True)
class ConditionalReads:
    """ASGI middleware. A tag is a hash of the bytes of an answer: the same on every
    gateway.
    """

    application: Application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_read = scope["type"] == "http" and scope["method"] == "GET"
        if is_read and scope["path"].startswith(PREFIX):
            send = _tag_answer(scope, send)
        await self.application(scope, receive, send)


def _tag_answer(scope: Scope, send: Send) -> Send:
    known_tags = b",".join(value for name, value in scope["headers"] if name == b"if-none-match")
    held_messages: list[Message] = []  # the start of an answer, until its body is there

    async def send_tagged(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.OK:
            held_messages.append(message)
            return
        if held_messages:
            start = held_messages.pop()
            if not message.get("more_body", False):
                start, message = _with_tag(start, message, known_tags)
            await send(start)
        await send(message)

    return send_tagged


def tag_of(body: bytes) -> bytes:
    digest = hashlib.sha256(body).hexdigest()[:TAG_DIGITS]
    return f'"{digest}"'.encode()


def tags_in(header: bytes) -> set[bytes]:
    """Return the tags of If-Match or If-None-Match; `*` is one."""
    return {tag.strip().removeprefix(b"W/") for tag in header.split(b",")}


def _with_tag(start: Message, body: Message, known_tags: bytes) -> tuple[Message, Message]:
    tag = tag_of(body.get("body", b""))
    headers = [*start["headers"], (b"etag", tag)]
    if not tags_in(known_tags) & {tag, b"*"}:
        return {**start, "headers": headers}, body
    kept = [header for header in headers if header[0].lower() not in _OF_A_BODY]
    return {**start, "status": int(HTTPStatus.NOT_MODIFIED), "headers": kept}, {**body, "body": b""}
