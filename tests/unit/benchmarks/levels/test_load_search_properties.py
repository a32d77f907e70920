"""What holds of a load search whatever the server does: published tuners broke each of these."""

from collections.abc import Sequence
from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.task.benchmark import (
    BenchmarkResult,
    BenchmarkSpec,
    BenchmarkTool,
    LevelResult,
    LoadKind,
    LoadSearch,
)
from shared.benchmarks.experiment_metrics import aggregate
from shared.benchmarks.levels.boundary import Probe, boundary_of, next_load
from shared.benchmarks.levels.level_choice import metrics_of, next_level, select_compared_levels
from shared.benchmarks.metrics import RequestSample, level_result

MARGINS = st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=40)


@st.composite
def searches(draw: st.DrawFn) -> LoadSearch:
    kind = draw(st.sampled_from(LoadKind))
    if kind is LoadKind.CONCURRENCY:
        least = float(draw(st.integers(1, 200)))
        most = least + draw(st.integers(1, 4000))
    else:
        least = draw(st.floats(0.01, 50))
        most = least * draw(st.floats(1.01, 1000))
    tolerance = draw(st.floats(0.01, 1))
    levels = draw(st.integers(2, 40))
    return LoadSearch(load=kind, min=least, max=most, tolerance=tolerance, max_levels=levels)


def probe_all(search: LoadSearch, margins: Sequence[float]) -> list[Probe]:
    """Search against a server whose every answer is arbitrary."""
    probes: list[Probe] = []
    while (load := next_load(search, probes, len(probes))) is not None:
        margin = margins[len(probes) % len(margins)]
        probes.append(Probe(load=load, margin=margin, error=abs(margin) / 4))
    return probes


@given(searches(), MARGINS)
def test_no_probe_leaves_the_bounds_of_its_search(search: LoadSearch, margins: list[float]) -> None:
    probes = probe_all(search, margins)

    assert probes
    assert len(probes) <= search.max_levels
    assert all(search.min <= probe.load <= search.max for probe in probes)
    if search.load is LoadKind.CONCURRENCY:
        assert all(probe.load == int(probe.load) for probe in probes)


@given(searches(), MARGINS)
@example(
    LoadSearch(load=LoadKind.POISSON, min=0.01, max=0.92, tolerance=0.07421875, max_levels=34),
    [0.0, 0.5],
)
def test_boundary_is_between_what_was_probed(search: LoadSearch, margins: list[float]) -> None:
    probes = probe_all(search, margins)

    boundary = boundary_of(search, probes)

    loads = {probe.load for probe in probes}
    assert boundary.low is None or boundary.low in loads
    assert boundary.high is None or boundary.high in loads
    if boundary.low is not None and boundary.high is not None:
        assert boundary.low <= boundary.high
    if boundary.estimate is not None:
        assert min(loads) <= boundary.estimate <= max(loads)


@given(searches(), st.floats(0.001, 10_000))
def test_steady_server_is_bracketed_around_its_limit(search: LoadSearch, limit: float) -> None:
    probes: list[Probe] = []
    while (load := next_load(search, probes, len(probes))) is not None:
        probes.append(Probe(load=load, margin=max(-1.0, 1 - load / limit)))

    boundary = boundary_of(search, probes)

    assert boundary.low is None or boundary.low <= limit
    assert boundary.high is None or boundary.high >= limit
    assert not boundary.non_monotone


def make_level(load: float, milliseconds: int, errors: int) -> LevelResult:
    samples = [
        RequestSample(
            ttft=milliseconds / 1000,
            e2e_latency=milliseconds / 500,
            num_input_tokens=8,
            num_output_tokens=4,
        )
    ] * 5
    return level_result(
        scenario="D(8,4)",
        num_concurrency=int(load),
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        run_duration=1.0,
        samples=samples,
        error_codes={"500": errors} if errors else {},
    )


@given(st.lists(st.tuples(st.integers(1, 900), st.sampled_from([0, 0, 0, 5])), min_size=1))
def test_figures_of_a_search_are_those_of_the_level_shown(answers: list[tuple[int, int]]) -> None:
    spec = BenchmarkSpec(load_search=LoadSearch(max=64), constraints="ttft:p95<300ms")
    levels: list[LevelResult] = []
    while (following := next_level(spec, levels)) is not None:
        milliseconds, errors = answers[len(levels) % len(answers)]
        levels.append(make_level(following[1].concurrency, milliseconds, errors))
    metrics = metrics_of(spec, levels)
    benchmark = BenchmarkResult(
        tool=BenchmarkTool.BUILTIN,
        tool_version="1",
        simulated=True,
        levels=tuple(levels),
        metrics=metrics,
        elapsed_seconds=1.0,
    )

    shown = aggregate(select_compared_levels(benchmark), spec.max_error_rate)

    assert replace(metrics, boundary=None) == shown
