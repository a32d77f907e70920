"""The greatest load that meets the constraints, in words."""

from collections.abc import Iterator
from typing import Final

from schemas.task.benchmark import LoadBoundary, LoadKind

_UNITS: Final = {LoadKind.CONCURRENCY: "requests at once"}
_RATE: Final = "requests per second"


def bracket_text(boundary: LoadBoundary) -> str:
    """`93 (90 to 97)`: the load, and between which loads it was sought no further."""
    if boundary.estimate is None:
        return "none"
    if boundary.high is None:
        return f"{boundary.estimate:.4g} or more"
    return f"{boundary.estimate:.4g} ({boundary.low or 0:g} to {boundary.high:g})"


def load_unit(kind: LoadKind) -> str:
    return _UNITS.get(kind, _RATE)


def odd_about(boundary: LoadBoundary) -> Iterator[str]:
    """Yield what to know before relying on the load."""
    if boundary.cliff:
        yield "misses the constraints by far just above its max load"
    if boundary.non_monotone:
        yield "met the constraints again at a load above a missed one"
