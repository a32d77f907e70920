"""The greatest load that meets the constraints: how it is bracketed, and what is odd about it."""

import math
import statistics
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from schemas.task.benchmark import (
    MAX_CONCURRENCY,
    BenchmarkSpec,
    LevelResult,
    LoadKind,
    LoadSearch,
)
from shared.benchmarks.levels.boundary import Probe, boundary_of, next_load
from shared.benchmarks.levels.level_choice import check_load_search, metrics_of, next_level
from shared.benchmarks.metrics import RequestSample, level_result
from shared.benchmarks.traffic import UnsupportedTraffic
from shared.benchmarks.verdicts.constraints import margin_of, parse_constraints
from tests.support.known_servers.known_engine import SPEED, make_spec, measure_all
from tests.support.known_servers.noisy_servers import make_server, search_boundary


def loads_measured(search: LoadSearch, margin: Callable[[float], float]) -> list[float]:
    levels: list[Probe] = []
    while (load := next_load(search, levels, len(levels))) is not None:
        levels.append(Probe(load=load, margin=margin(load)))
    return [each.load for each in levels]


def test_loads_double_until_missed_then_bisect() -> None:
    search = LoadSearch(max=1000)

    loads = loads_measured(search, lambda load: 1 - load / 100)

    # Four times as large while there is room for it; the middle of a bracket is of logarithms.
    assert loads[:5] == [1, 4, 16, 64, 128]
    assert loads[5:7] == [91, 108]
    assert len(loads) <= search.max_levels


def test_half_margin_doubles_the_next_load() -> None:
    assert loads_measured(LoadSearch(max=4), lambda _: 0.5) == [1, 2, 4]
    assert loads_measured(LoadSearch(max=4), lambda _: 0.6) == [1, 4]


def test_noisy_boundary_is_bracketed_quickly() -> None:
    servers = [make_server(number) for number in range(60)]

    found = [search_boundary(server, number) for number, server in enumerate(servers)]

    right = sum(server.is_in(each) for server, (each, _) in zip(servers, found, strict=True))
    assert right >= 0.95 * len(servers)
    assert statistics.median(len(levels) for _, levels in found) <= 14
    widths = [(each.high or math.inf) / (each.low or 1.0) for each, _ in found]
    assert statistics.median(widths) < 1.15
    cliffs = [each.cliff for each, _ in found]
    assert sum(cliffs[2::3]) >= 18
    assert sum(cliffs[0::3]) + sum(cliffs[1::3]) <= 4


def test_slow_moment_is_measured_again() -> None:
    search, levels = LoadSearch(max=1000), list[Probe]()
    while (load := next_load(search, levels, len(levels))) is not None:
        is_first = all(each.load != load for each in levels)
        margin = -1.0 if load == 16 and is_first else 1 - load / 100
        levels.append(Probe(load=load, margin=margin))

    found = boundary_of(search, levels)

    assert [each.load for each in levels].count(16) > 1
    assert found.estimate == pytest.approx(100, rel=0.1)
    assert (found.cliff, found.non_monotone) == (False, False)


def test_miss_at_smallest_load_is_repeated() -> None:
    search = LoadSearch()

    loads = loads_measured(search, lambda _: -0.5)

    assert loads == [1, 1]
    found = boundary_of(search, [Probe(load=load, margin=-0.5) for load in loads])
    assert (found.low, found.high, found.estimate) == (None, 1, None)


def test_bracket_ends_without_margin() -> None:
    margins = {16: 0.75, 64: 0.0, 128: -0.5}
    levels = [Probe(load=load, margin=margin) for load, margin in margins.items()]

    assert next_load(LoadSearch(max=1000), levels, len(levels)) == 32


def test_load_below_a_miss_is_a_quarter() -> None:
    assert next_load(LoadSearch(max=1000), [Probe(load=16, margin=-0.5)], 1) == 4


def test_server_meeting_all_is_not_overloaded() -> None:
    search = LoadSearch(max=48)

    loads = loads_measured(search, lambda _: 0.9)

    assert loads == [1, 4, 16, 48]
    found = boundary_of(search, [Probe(load=load, margin=0.9) for load in loads])
    assert (found.low, found.high, found.estimate) == (48, None, 48)


def test_met_load_above_a_miss_is_told() -> None:
    margins = {1: 0.9, 4: 0.8, 8: -0.4, 12: 0.5, 16: -0.6}

    found = boundary_of(
        LoadSearch(), [Probe(load=load, margin=margin) for load, margin in margins.items()]
    )

    assert found.non_monotone
    assert found.low == 4


def test_rates_are_searched_in_fractions() -> None:
    search = LoadSearch(load=LoadKind.POISSON, min=0.5, max=20)

    loads = loads_measured(search, lambda load: 1 - load / 0.7)

    assert loads[:2] == [0.5, 1.0]
    assert 0.5 < loads[2] < 1.0


def test_more_levels_than_may_be_are_never_measured() -> None:
    search = LoadSearch(max=1000, tolerance=0.01, max_levels=9)

    assert len(loads_measured(search, lambda load: 1 - load / 700)) == 9
    # What is set aside says nothing, and counts.
    assert next_load(search, [], 9) is None
    assert next_load(search, [], 8) == 1


SLOTS = SPEED.slots
QUEUED: dict[str, Any] = {
    "load_search": LoadSearch(max=256),
    "constraints": "ttft:p95<200ms, error_rate<1%",
    "max_requests_per_level": 120,
}


@pytest.fixture(scope="module")
def searched() -> tuple[BenchmarkSpec, list[LevelResult]]:
    spec = make_spec(**QUEUED)
    return spec, measure_all(spec)


def test_known_engine_is_searched_to_its_limit(
    searched: tuple[BenchmarkSpec, list[LevelResult]],
) -> None:
    spec, levels = searched

    metrics = metrics_of(spec, levels)

    found = metrics.boundary
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    constraints = parse_constraints(spec.constraints)
    # Every level of its own says the same.
    for level in levels:
        margin, _ = margin_of(constraints, level)
        assert (margin > 0) is (level.num_concurrency < found.high)
    assert found.low <= (metrics.max_load or 0) <= found.high
    assert found.levels == len(levels) <= 14


def test_experiment_has_figures_of_largest_load(
    searched: tuple[BenchmarkSpec, list[LevelResult]],
) -> None:
    spec, levels = searched

    metrics = metrics_of(spec, levels)

    assert metrics.boundary is not None
    at = metrics.boundary.measured
    assert at is not None
    assert (metrics.boundary.low or 0) <= at <= (metrics.max_load or 0)
    assert metrics.total_levels == sum(level.num_concurrency == at for level in levels)
    assert metrics.failed_levels == ()


def test_unserved_load_is_missed_surely() -> None:
    spec = make_spec(**QUEUED | {"constraints": "ttft:p95<200ms"})
    served, failed, lucky = (
        level_result(
            scenario="D(1,1)",
            num_concurrency=load,
            started_at=datetime(2026, 1, 1, tzinfo=UTC),
            run_duration=10.0,
            samples=[
                RequestSample(ttft=0.1, e2e_latency=0.2, num_input_tokens=1, num_output_tokens=2)
            ],
            error_codes={"500": errors} if errors else {},
        )
        for load, errors in ((4, 0), (8, 9), (16, 0))
    )

    for levels in ([served, failed], [served, failed, lucky]):
        found = metrics_of(spec, levels).boundary

        assert found is not None
        assert (found.low, found.high, found.measured) == (4.0, 8.0, 4.0)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"traffic_scenarios": ("D(1,1)", "D(2,2)")}, "$.benchmark.traffic_scenarios"),
        ({"arrivals": ("poisson(2)",)}, "$.benchmark.arrivals"),
        ({"constraints": ""}, "$.optimization.constraints"),
        ({"load_search": LoadSearch(min=8, max=8)}, "$.benchmark.load_search.max"),
        ({"load_search": LoadSearch(min=1.5)}, "$.benchmark.load_search.min"),
        (
            {"load_search": LoadSearch(max=MAX_CONCURRENCY + 1)},
            "$.benchmark.load_search.max",
        ),
    ],
)
def test_a_search_that_could_find_nothing_is_refused(change: dict[str, Any], path: str) -> None:
    with pytest.raises(UnsupportedTraffic) as refused:
        check_load_search(make_spec(**QUEUED | change))

    assert refused.value.path == path


def test_fixed_levels_stay_in_their_order() -> None:
    spec = make_spec(traffic_scenarios=("D(1,1)", "D(2,2)"), num_concurrency=(8, 4))

    first = next_level(spec, [])

    assert first is not None
    assert (first[0], first[1].concurrency) == ("D(1,1)", 8)
