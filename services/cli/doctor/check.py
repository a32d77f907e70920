"""What a check is, and what it says."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from msgspec import Struct

from services.cli.doctor.host_facts import HostFacts

FOUND_CHARACTERS: Final = 240
FIX_CHARACTERS: Final = 1600
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class State(StrEnum):
    """`missing` is not there, `error` does not work, `warn` works, not as well as it might."""

    OK = "ok"
    WARN = "warn"
    MISSING = "missing"
    ERROR = "error"
    NOT_APPLICABLE = "not applicable"


class Seen(Struct, frozen=True):
    """What a check found, with units, and the fix: what to type or to do. None if there is none."""

    state: State
    found: str
    fix: str = ""


class Check(Struct, frozen=True, kw_only=True):
    """One line of the answer. `why` says what depends on it.

    `needed`: without it this host cannot do what it is for.
    """

    name: str
    state: State
    found: str
    why: str
    fix: str
    needed: bool

    @property
    def fails(self) -> bool:
        return self.needed and self.state in {State.MISSING, State.ERROR}


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """How one thing is inspected. `inspect` may block, fail or hang: it is given up on then."""

    name: str
    why: str
    inspect: Callable[[HostFacts], Seen]
    needed: bool = False

    def check(self, seen: Seen) -> Check:
        return Check(
            name=self.name,
            state=seen.state,
            found=printable(seen.found),
            why=self.why,
            fix=printable(seen.fix, FIX_CHARACTERS),
            needed=self.needed,
        )


def printable(text: str, limit: int = FOUND_CHARACTERS) -> str:
    """On one line, without anything that a terminal would obey, and not endless."""
    plain = " ".join(_UNPRINTABLE.sub(" ", text).split())
    return plain if len(plain) <= limit else f"{plain[: limit - 3]}..."


def ok(found: str) -> Seen:
    return Seen(State.OK, found)


def warn(found: str, fix: str) -> Seen:
    return Seen(State.WARN, found, fix)


def missing(found: str, fix: str) -> Seen:
    return Seen(State.MISSING, found, fix)


def error(found: str, fix: str) -> Seen:
    return Seen(State.ERROR, found, fix)


def not_applicable(found: str) -> Seen:
    return Seen(State.NOT_APPLICABLE, found)
