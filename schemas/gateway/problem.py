"""How the gateway answers what it refuses."""

from typing import Any

from msgspec import Struct


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error in the form of RFC 9457, with our closed `code` and the offending field's `path`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    path: str | None = None
    instance: str | None = None
    details: dict[str, Any] = {}
