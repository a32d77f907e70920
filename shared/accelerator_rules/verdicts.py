"""Verdicts in their order, from what is supported to what is blocked."""

from collections.abc import Iterable
from typing import Final

from schemas.gpus.checks import Verdict

_ORDER: Final = tuple(Verdict)


def best(verdicts: Iterable[Verdict]) -> Verdict:
    return min(verdicts, key=_ORDER.index)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Supported where there is none."""
    return max(verdicts, key=_ORDER.index, default=Verdict.SUPPORTED)
