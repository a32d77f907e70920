"""How much fits into one reply, and where the next one goes on."""

import base64
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from schemas.errors import ErrorCode
from shared.errors import RefusedError

T = TypeVar("T")
P = TypeVar("P", bound=msgspec.Struct)
REPLY_BYTES: Final = 768 * 1024  # of the bus's 1 MiB


def fitting(items: Iterable[T], limit_bytes: int = REPLY_BYTES) -> list[T]:
    """Return as many items from the front as fit into a reply together."""
    kept_items: list[T] = []
    size = 0
    for item in items:
        size += len(msgspec.msgpack.encode(item))
        if size > limit_bytes:
            break
        kept_items.append(item)
    return kept_items


def page_of(
    rows: Sequence[tuple[T, msgspec.Struct]], limit: int, *, over_bus: bool = True
) -> tuple[tuple[T, ...], str | None]:
    """The first `limit` or, over the bus, as many as fit, at least one; and the cursor of what
    follows them.

    `rows` have each item with its place in the order, and one item too many where there are more.
    """
    items = [item for item, _ in rows]
    first = items[:limit]
    page = tuple((fitting(first) or items[:1]) if over_bus else first)
    return page, cursor_at(rows[len(page) - 1][1]) if len(page) < len(rows) else None


def cursor_at(place: msgspec.Struct) -> str:
    """A place in the order of a list, as clients hand it back."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(place)).rstrip(b"=").decode()


def place_at(cursor: str | None, type_: type[P]) -> P | None:
    """The place that a cursor of this list names. Raises RefusedError for anything else."""
    if cursor is None:
        return None
    try:
        packed = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        return msgspec.msgpack.decode(packed, type=type_)
    except (ValueError, msgspec.DecodeError) as error:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected the next_cursor of an earlier answer of this list, found {cursor!r}",
            path="$.cursor",
        ) from error
