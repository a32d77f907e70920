"""When requests are sent: a closed loop of so many at once, or times that nobody's answer moves."""

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.task.benchmark import MAX_CONCURRENCY, BenchmarkSpec
from shared.benchmarks.traffic import UnsupportedTraffic

_CLOSED: Final = re.compile(r"closed\((\d+)\)")
_RATE: Final = re.compile(r"(poisson|constant)\(([\d.]+)\)")
_TRACE: Final = re.compile(r"trace(?:\(([\d.]+)\))?")
_BURST: Final = re.compile(r"burst\(([\d.]+),(\d+)\)")


@dataclass(frozen=True, slots=True)
class Load:
    """`concurrency` requests at once; with `arrivals` the most that may be in flight."""

    concurrency: int
    arrivals: str | None = None


def loads(spec: BenchmarkSpec) -> list[Load]:
    """Return the loads of each scenario. Raises UnsupportedTraffic."""
    loads = [_load(text, place) for place, text in enumerate(spec.arrivals)]
    if spec.max_in_flight is not None:
        most = spec.max_in_flight
        loads = [Load(min(load.concurrency, most), load.arrivals) for load in loads]
    has_times = bool(spec.arrival_trace_seconds)
    if any(map(is_trace, spec.arrivals)) and has_times is (spec.trace is not None):
        raise UnsupportedTraffic(
            "expected the times of the trace either here or in benchmark.trace, got "
            + ("both" if has_times else "none"),
            "$.benchmark.arrival_trace_seconds",
        )
    return loads or [Load(concurrency) for concurrency in spec.num_concurrency]


def _load(text: str, place: int) -> Load:
    if match := _CLOSED.fullmatch(text):
        concurrency = int(match[1])
        if not 1 <= concurrency <= MAX_CONCURRENCY:
            raise _traffic_error(text, f"1 to {MAX_CONCURRENCY} requests at once", place)
        return Load(concurrency)
    rate_per_s, size = _rate(text)
    if is_trace(text):
        if speed_of(text) <= 0:
            raise _traffic_error(text, "a speed above 0", place)
    elif rate_per_s <= 0 or size < 1:
        raise _traffic_error(text, "a rate and a size above 0", place)
    return Load(MAX_CONCURRENCY, text)


def _traffic_error(text: str, expected: str, place: int) -> UnsupportedTraffic:
    return UnsupportedTraffic(
        f"expected {expected}, got {text!r}", f"$.benchmark.arrivals[{place}]"
    )


def _rate(text: str) -> tuple[float, int]:
    """Requests per second, and how many come together."""
    try:
        if match := _RATE.fullmatch(text):
            return float(match[2]), 1
        if match := _BURST.fullmatch(text):
            return float(match[1]), int(match[2])
    except ValueError:
        pass
    return 0.0, 0


def is_trace(text: str | None) -> bool:
    """True for the times of a trace, at whatever speed."""
    return _TRACE.fullmatch(text or "") is not None


def speed_of(text: str) -> float:
    """Return how many times as fast a trace is sent; 0 for what is no number."""
    match = _TRACE.fullmatch(text)
    try:
        return float(match[1] or 1) if match else 0.0
    except ValueError:
        return 0.0


def mean_rate_per_s(text: str) -> float | None:
    """Requests per second; None for a closed loop and for a trace."""
    rate_per_s, _ = _rate(text)
    return rate_per_s or None


def offsets(text: str, trace: Sequence[float], rng: random.Random) -> Iterator[float]:
    """Seconds from the level's beginning, rising; only a trace ends.

    poisson(rate) and constant(rate) in requests per second; burst(rate,size) sends `size` at once,
    as often as that makes `rate`; a trace is sent as it was, from its first time on, or
    trace(speed) so many times as fast.
    """
    if is_trace(text):
        ordered, speed = sorted(trace), speed_of(text)
        yield from ((seconds - ordered[0]) / speed for seconds in ordered)
        return
    rate_per_s, size = _rate(text)
    if text.startswith("poisson"):
        seconds = 0.0
        while True:
            yield seconds
            seconds += rng.expovariate(rate_per_s)
    for number in itertools.count():
        yield number // size * size / rate_per_s
