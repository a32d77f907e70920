"""Loads in their notation, and the times that they make."""

import itertools
import random
import statistics
from typing import Any

import pytest

from schemas.task.benchmark import MAX_CONCURRENCY, BenchmarkSpec
from shared.benchmarks.arrivals import Load, loads, offsets
from shared.benchmarks.traffic import UnsupportedTraffic


def first(text: str, count: int, trace: tuple[float, ...] = ()) -> list[float]:
    return list(itertools.islice(offsets(text, trace, random.Random(1)), count))


def test_arrivals_stand_instead_of_the_concurrencies() -> None:
    spec = BenchmarkSpec(num_concurrency=(1, 2), arrivals=("closed(8)", "poisson(2.5)"))

    assert loads(spec) == [Load(8), Load(MAX_CONCURRENCY, "poisson(2.5)")]
    assert spec.num_levels == 2
    assert loads(BenchmarkSpec(num_concurrency=(1, 2))) == [Load(1), Load(2)]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"arrivals": ("closed(0)",)}, "$.benchmark.arrivals[0]"),
        ({"arrivals": ("poisson(1)", "poisson(0)")}, "$.benchmark.arrivals[1]"),
        ({"arrivals": ("burst(5,0)",)}, "$.benchmark.arrivals[0]"),
        ({"arrivals": ("trace",)}, "$.benchmark.arrival_trace_seconds"),
    ],
)
def test_a_load_that_cannot_be_made_is_refused(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(UnsupportedTraffic) as refusal:
        loads(BenchmarkSpec(**fields))

    assert refusal.value.path == path


def test_each_kind_makes_its_times() -> None:
    assert first("constant(4)", 4) == [0, 0.25, 0.5, 0.75]
    assert first("burst(4,3)", 7) == [0, 0, 0, 0.75, 0.75, 0.75, 1.5]
    assert first("trace", 9, (3.0, 1.0, 1.5)) == [0, 0.5, 2.0]


def test_poisson_arrivals_have_rate_and_spread() -> None:
    times = first("poisson(10)", 5000)
    gaps = [after - before for before, after in itertools.pairwise(times)]

    assert statistics.fmean(gaps) == pytest.approx(0.1, rel=0.05)
    assert statistics.pstdev(gaps) == pytest.approx(0.1, rel=0.05)
