"""Which level of a benchmark is measured next, and which of them its figures are of."""

from collections.abc import Sequence

from msgspec.structs import replace

from schemas.task.benchmark import (
    MAX_CONCURRENCY,
    BenchmarkMetrics,
    BenchmarkResult,
    BenchmarkSpec,
    LevelResult,
    LoadKind,
    LoadSearch,
)
from shared.benchmarks.arrivals import Load, loads
from shared.benchmarks.experiment_metrics import aggregate, has_failed
from shared.benchmarks.levels.boundary import Probe, boundary_of, next_load
from shared.benchmarks.traffic import UnsupportedTraffic
from shared.benchmarks.verdicts.constraints import (
    Constraint,
    check_constraints,
    margin_of,
    parse_constraints,
    worst_excess,
)


def check_load_search(spec: BenchmarkSpec) -> None:
    """Raises UnsupportedTraffic for a load search that could find nothing."""
    search = spec.load_search
    if search is None:
        return
    path = "$.benchmark.load_search"
    if len(spec.traffic_scenarios) > 1:
        raise UnsupportedTraffic(
            "expected one traffic scenario with a load search, got "
            f"{len(spec.traffic_scenarios)}: each has a boundary of its own",
            "$.benchmark.traffic_scenarios",
        )
    if spec.arrivals:
        raise UnsupportedTraffic(
            "expected no loads beside a load search, which finds them", "$.benchmark.arrivals"
        )
    if search.max <= search.min:
        raise UnsupportedTraffic(
            f"expected more than {search.min:g}, its min, got {search.max:g}", f"{path}.max"
        )
    if search.load is LoadKind.CONCURRENCY:
        for name in ("min", "max"):
            value = getattr(search, name)
            if value % 1 or not 1 <= value <= MAX_CONCURRENCY:
                raise UnsupportedTraffic(
                    f"expected 1 to {MAX_CONCURRENCY} requests at once, got {value:g}",
                    f"{path}.{name}",
                )
    if not parse_constraints(spec.constraints):
        raise UnsupportedTraffic(
            "expected what the greatest load has to meet, as in 'ttft:p99<300ms'",
            "$.optimization.constraints",
        )


def next_level(spec: BenchmarkSpec, measured: Sequence[LevelResult]) -> tuple[str, Load] | None:
    """Scenario and load; None: all is measured."""
    if spec.load_search is None:
        pairs = [(scenario, load) for scenario in spec.traffic_scenarios for load in loads(spec)]
        return pairs[len(measured)] if len(measured) < len(pairs) else None
    probes = _probes(spec, spec.load_search, measured)
    load = next_load(spec.load_search, probes, len(measured))
    return (
        None if load is None else (spec.traffic_scenarios[0], _load(spec, spec.load_search, load))
    )


def metrics_of(spec: BenchmarkSpec, levels: Sequence[LevelResult]) -> BenchmarkMetrics:
    """Return the metrics of all levels, or of a load search those at the boundary."""
    search = spec.load_search
    if search is None:
        return aggregate(levels, spec.max_error_rate)
    boundary = boundary_of(search, _probes(spec, search, levels))
    constraints = parse_constraints(spec.constraints)
    by_load: dict[float, list[LevelResult]] = {}
    for level in levels:
        by_load.setdefault(_number(search, level), []).append(level)
    most = boundary.estimate or 0.0
    met = (load for load in by_load if load <= most and _meets(spec, constraints, by_load[load]))
    measured = max(met, default=min(by_load, default=None))
    return replace(
        aggregate(by_load.get(measured or 0.0, ()), spec.max_error_rate),
        boundary=replace(boundary, measured=measured, levels=len(levels)),
    )


def select_compared_levels(benchmark: BenchmarkResult) -> tuple[LevelResult, ...]:
    """Return the levels that the experiment's metrics are made of."""
    boundary = benchmark.metrics.boundary
    if boundary is None:
        return benchmark.levels
    search = LoadSearch(load=boundary.load)
    return tuple(level for level in benchmark.levels if _number(search, level) == boundary.measured)


def _probes(spec: BenchmarkSpec, search: LoadSearch, levels: Sequence[LevelResult]) -> list[Probe]:
    """A level that is set aside says nothing of its load."""
    constraints = parse_constraints(spec.constraints)
    probes = []
    for level in levels:
        if level.set_aside is None:
            margin, error = -1.0, 0.0
            if not has_failed(level, spec.max_error_rate):
                margin, error = margin_of(constraints, level)
            probes.append(Probe(load=_number(search, level), margin=margin, error=error))
    return probes


def _meets(
    spec: BenchmarkSpec, constraints: Sequence[Constraint], levels: Sequence[LevelResult]
) -> bool:
    is_served = not any(has_failed(level, spec.max_error_rate) for level in levels)
    return is_served and not worst_excess(check_constraints(constraints, levels))


def _load(spec: BenchmarkSpec, search: LoadSearch, load: float) -> Load:
    if search.load is LoadKind.CONCURRENCY:
        return Load(int(load))
    return Load(spec.max_in_flight or MAX_CONCURRENCY, f"{search.load.value}({load:.10g})")


def _number(search: LoadSearch, level: LevelResult) -> float:
    if search.load is LoadKind.CONCURRENCY or level.arrivals is None:
        return float(level.num_concurrency)
    return float(level.arrivals.removesuffix(")").partition("(")[2])
