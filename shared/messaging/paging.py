"""How much fits into one reply."""

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")
REPLY_BYTES: Final = 768 * 1024  # of the bus's 1 MiB


def fitting(items: Iterable[T], limit_bytes: int = REPLY_BYTES) -> list[T]:
    """As many items from the front as fit into a reply together."""
    found: list[T] = []
    size = 0
    for item in items:
        size += len(msgspec.msgpack.encode(item))
        if size > limit_bytes:
            break
        found.append(item)
    return found
