"""Whole logs around a cause: what an engine says in passing before it, and what follows from it."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from schemas.executor.attempts import FailureKind

_HERE: Final = Path(__file__).parent


class KnownLog(Struct, frozen=True, kw_only=True):
    """`is_held_back`: rows of the catalogue were not written by it."""

    family: str
    kind: FailureKind
    cause: str
    text: str
    is_held_back: bool


def known_logs() -> Iterator[KnownLog]:
    """Yield every cause of `causes.toml` in the log of its engine."""
    for family, own in tomllib.loads((_HERE / "causes.toml").read_text()).items():
        for number, log in enumerate(own["logs"]):
            yield KnownLog(
                family=family,
                kind=FailureKind(own["kind"]),
                cause=log["text"],
                text=_in_log_of(log["layout"], log["text"]),
                is_held_back=number % 2 == 1,
            )


def _in_log_of(layout: str, cause: str) -> str:
    """Return the engine's log with the cause in its places; `bare`: with little around it."""
    if layout == "bare":
        return f"starting\n{cause}"
    return (_HERE / f"{layout}.log").read_text().replace("{cause}", cause)
