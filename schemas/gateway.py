"""What the gateway itself publishes and the shapes that only people's clients see."""

from typing import Any, ClassVar
from uuid import UUID

from msgspec import Struct

from schemas.base import Event, Token, UtcDatetime


class CustomEvent(Event, frozen=True, kw_only=True, tag="gateway.custom"):
    """An event that a user published through the API."""

    key_field: ClassVar[str | None] = "name"
    name: Token
    namespace: str
    data: dict[str, Any]


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as RFC 9457 tells it, with our closed `code` and the offending field's `path`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    path: str | None = None
    instance: str | None = None
    details: dict[str, Any] = {}


class StoredEvent(Struct, frozen=True, kw_only=True):
    """An event in the gateway's log. `cursor` only grows; a client resumes after the last it has seen."""

    cursor: int
    subject: str
    type: str
    message_id: UUID
    occurred_at: UtcDatetime
    event: dict[str, Any]
