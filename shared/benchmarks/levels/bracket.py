"""The greatest load that meets the constraints, in words."""

from collections.abc import Iterator
from typing import Final

from schemas.task.benchmark import LoadBoundary, LoadKind

_UNITS: Final = {LoadKind.CONCURRENCY: "requests at once"}
_RATE: Final = "requests per second"


def bracket_text(found: LoadBoundary) -> str:
    """`93 (90 to 97)`: the load, and between which loads it was sought no further."""
    if found.estimate is None:
        return "none"
    if found.high is None:
        return f"{found.estimate:.4g} or more"
    return f"{found.estimate:.4g} ({found.low or 0:g} to {found.high:g})"


def load_unit(kind: LoadKind) -> str:
    return _UNITS.get(kind, _RATE)


def odd_about(found: LoadBoundary) -> Iterator[str]:
    """What to know before the load is relied on."""
    if found.cliff:
        yield "misses the constraints by far just above its max load"
    if found.non_monotone:
        yield "met the constraints again at a load above a missed one"
