"""Levels in words, for people."""

import re
from collections.abc import Sequence
from typing import Final

from schemas.task.benchmark import FailedLevel, LevelResult
from schemas.task.modality import modality_of
from schemas.task.task_file import BenchmarkConfig

SHOWN_LEVELS: Final = 4
_IMAGES: Final = re.compile(r"I\((\d+),(\d+)(?:,(\d+))?\)")


def describe_failed_levels(failed: Sequence[FailedLevel], most: int = SHOWN_LEVELS) -> str:
    """Return `D(100,100) at concurrency 8 served 1 of 17, ... and 2 more`."""
    texts = [f"{load_text(level)} {_why_failed(level)}" for level in failed[:most]]
    more = f" and {len(failed) - most} more" if len(failed) > most else ""
    return ", ".join(texts) + more or "no level was measured"


def load_text(level: LevelResult | FailedLevel) -> str:
    """`D(100,100) at concurrency 8`, or `D(100,100) at poisson(20)`."""
    return f"{level.scenario} at {level.arrivals or f'concurrency {level.num_concurrency}'}"


def items_text(scenario: str, batch_size: int) -> str:
    """Return what each request has beside text: `8 inputs`; empty of text."""
    if images := _IMAGES.fullmatch(scenario):
        width, height, count = images.groups()
        return f"{_count(int(count or 1), 'images')} of {width} x {height} pixels"
    items = modality_of(scenario).traits.items
    return _count(batch_size, items) if items else ""


def request_text(level: LevelResult) -> str:
    """Return what each request had: `each request had 8 inputs`; empty of text."""
    items = items_text(level.scenario, level.batch_size)
    return f"each request had {items}" if items else ""


def _count(number: int, items: str) -> str:
    return f"{number} {items.removesuffix('s') if number == 1 else items}"


def benchmark_text(benchmark: BenchmarkConfig) -> str:
    """Return the load of a benchmark in a line: `D(100,40), 1 and 4 at once`."""
    scenarios = ", ".join(benchmark.traffic_scenarios)
    if benchmark.load_search is not None:
        loads = "greatest load"
    elif benchmark.arrivals:
        loads = ", ".join(benchmark.arrivals)
    else:
        loads = f"{', '.join(map(str, benchmark.num_concurrency))} at once"
    parts = [scenarios, loads]
    if benchmark.batch_size > 1:
        parts.append(f"{benchmark.batch_size} {benchmark.modality.traits.items} each")
    if benchmark.turns > 1:
        parts.append(f"{benchmark.turns} turns")
    if benchmark.prefix_share:
        parts.append(f"prefix {benchmark.prefix_share:g}")
    if benchmark.dataset is not None:
        parts.append("prompts of a dataset")
    return "; ".join(parts)


def _why_failed(level: FailedLevel) -> str:
    if level.set_aside is not None:
        return f"is set aside: {level.set_aside}"
    return f"served {level.num_completed_requests} of {level.num_requests}"


def percent_text(share: float) -> str:
    """`0.01` as `1 %`."""
    return f"{100 * share:g} %"
