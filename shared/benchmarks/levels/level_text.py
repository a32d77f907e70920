"""Levels in words, for people."""

from collections.abc import Sequence
from typing import Final

from schemas.task.benchmark import FailedLevel, LevelResult

SHOWN_LEVELS: Final = 4


def failed_levels_text(failed: Sequence[FailedLevel], most: int = SHOWN_LEVELS) -> str:
    """`D(100,100) at concurrency 8 served 1 of 17, ... and 2 more`."""
    texts = [f"{load_text(level)} {_why_failed(level)}" for level in failed[:most]]
    more = f" and {len(failed) - most} more" if len(failed) > most else ""
    return ", ".join(texts) + more or "no level was measured"


def load_text(level: LevelResult | FailedLevel) -> str:
    """`D(100,100) at concurrency 8`, or `D(100,100) at poisson(20)`."""
    return f"{level.scenario} at {level.arrivals or f'concurrency {level.num_concurrency}'}"


def _why_failed(level: FailedLevel) -> str:
    if level.set_aside is not None:
        return f"is set aside: {level.set_aside}"
    return f"served {level.num_completed_requests} of {level.num_requests}"


def percent_text(share: float) -> str:
    """`0.01` as `1 %`."""
    return f"{100 * share:g} %"
