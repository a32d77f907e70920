"""Texts of the tools as values. What makes no sense is unknown, which is None."""

import math
from typing import Final

_UNKNOWN: Final = frozenset(
    {
        "",
        "n/a",
        "err!",
        "unknown error",
        "not supported",
        "not available",
        "not found",
        "insufficient permissions",
        "unknown",
        "none",
        "gpu is lost",
        "gpu requires reset",
    }
)
_CLAIMS: Final = {
    "yes": True,
    "no": False,
    "1": True,
    "0": False,
    "true": True,
    "false": False,
    "enabled": True,
    "disabled": False,
}


def text(value: str) -> str | None:
    """The text, unless it says in the tools' way that there is none."""
    return None if value.strip("[] ").lower() in _UNKNOWN else value


def number(value: str) -> float | None:
    """The finite number at the start; a unit may follow after a space."""
    try:
        parsed = float(value.partition(" ")[0])
    except ValueError:
        return None
    return parsed if math.isfinite(parsed) else None


def amount(value: str) -> float | None:
    """A number that is not negative."""
    parsed = number(value)
    return parsed if parsed is not None and parsed >= 0 else None


def count(value: str) -> int | None:
    """A whole number, cut off if it was none."""
    parsed = amount(value)
    return None if parsed is None else int(parsed)


def claim(value: str) -> bool | None:
    """Yes or no, in the words of the tools."""
    return _CLAIMS.get(value.strip().lower())
