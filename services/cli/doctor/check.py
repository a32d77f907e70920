"""What a check is, and what it says."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from msgspec import Struct

from services.cli.doctor.host_facts import HostFacts

MAX_RESULT_CHARACTERS: Final = 240
MAX_FIX_CHARACTERS: Final = 1600
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class State(StrEnum):
    """`missing` is not there, `error` does not work, `warn` works, not as well as it might."""

    OK = "ok"
    WARN = "warn"
    MISSING = "missing"
    ERROR = "error"
    NOT_APPLICABLE = "not applicable"


class CheckResult(Struct, frozen=True):
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
    inspect: Callable[[HostFacts], CheckResult]
    needed: bool = False

    def check(self, result: CheckResult) -> Check:
        return Check(
            name=self.name,
            state=result.state,
            found=printable(result.found),
            why=self.why,
            fix=printable(result.fix, MAX_FIX_CHARACTERS),
            needed=self.needed,
        )


def printable(text: str, limit: int = MAX_RESULT_CHARACTERS) -> str:
    """Return the text on one line, without anything that a terminal would obey, and not endless."""
    plain = " ".join(_UNPRINTABLE.sub(" ", text).split())
    return plain if len(plain) <= limit else f"{plain[: limit - 3]}..."


def ok(text: str) -> CheckResult:
    return CheckResult(State.OK, text)


def warn(text: str, fix: str) -> CheckResult:
    return CheckResult(State.WARN, text, fix)


def missing(text: str, fix: str) -> CheckResult:
    return CheckResult(State.MISSING, text, fix)


def error(text: str, fix: str) -> CheckResult:
    return CheckResult(State.ERROR, text, fix)


def not_applicable(text: str) -> CheckResult:
    return CheckResult(State.NOT_APPLICABLE, text)
