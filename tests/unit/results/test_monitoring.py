"""What an experiment's samples are made into."""

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.executor.attempts import Window
from schemas.gpus.device_grant import DeviceGrant
from schemas.results.measurements import EnergySource, GpuMonitoring
from schemas.telemetry.monitoring import Spread
from services.results.domain.monitoring import Run, summarize
from services.results.domain.reading import Reading, Span, union_of

BOOT = UUID(int=1)
KEY = ("node-a", "GPU-0")


def make_device(index: int = 0, *, node_id: str = "node-a") -> DeviceGrant:
    return DeviceGrant(node_id=node_id, uuid=f"GPU-{index}", index=index, name="NVIDIA A100")


def make_reading(at: float, **overrides: Any) -> Reading:
    fields: dict[str, Any] = {
        "at": at,
        "interval_seconds": 1.0,
        "boot_id": BOOT,
        "sequence": round(at * 1000),
        "utilization_percent": 80.0,
        "memory_total_mb": 80_000.0,
        "memory_used_mb": 20_000.0,
        "temperature_c": 60.0,
        "power_draw_w": 360.0,
    }
    return Reading(**{**fields, **overrides})


def every_second(
    start: float, stop: float, make: Callable[..., Reading] = make_reading, **overrides: Any
) -> list[Reading]:
    return [
        make(start + tick, **overrides)
        for tick in itertools.takewhile(lambda t: start + t <= stop, itertools.count())
    ]


def monitoring_of(readings: Sequence[Reading], *spans: tuple[float, float]) -> GpuMonitoring:
    return summarize(
        Run([make_device()], [Span(*span) for span in spans]), {KEY: readings}, simulated=False
    )


def test_minute_of_readings_has_required_shape() -> None:
    readings = [
        make_reading(100.3 + tick, utilization_percent=70.0 + tick % 21, memory_used_mb=16_000.0)
        for tick in range(-2, 62)
    ]

    monitoring = monitoring_of(readings, (100.0, 160.0))

    stats = monitoring.gpu_stats["0"]
    assert monitoring.monitoring_duration_seconds == 60.0
    assert monitoring.sample_count == 60
    assert stats.name == "NVIDIA A100"
    assert (stats.utilization.min, stats.utilization.max) == (70.0, 90.0)
    assert stats.utilization.samples == 60
    assert stats.memory_usage_percent == Spread(min=20.0, max=20.0, mean=20.0)
    assert monitoring.coverage_percent == pytest.approx(100.0)
    assert monitoring.phase == "measuring"


@pytest.mark.parametrize(
    ("readings", "spans", "coverage"),
    [
        pytest.param(every_second(8.4, 15), [(10, 12)], 100.0, id="two seconds between ticks"),
        pytest.param(every_second(8.4, 15), [(10.2, 10.7)], 100.0, id="half a second, one tick"),
        pytest.param(every_second(8.4, 15), [(10.5, 11.2)], 0.0, id="no tick inside"),
        pytest.param(every_second(10.4, 11.5), [(10, 12)], 95.0, id="no neighbours outside"),
        pytest.param(every_second(0, 15), [(10, 20)], 55.0, id="the agent stopped halfway"),
        pytest.param(
            [r for r in every_second(0, 30) if int(r.at) % 2 == 0], [(10, 20)], 50.0, id="every 2nd"
        ),
        pytest.param(
            [make_reading(at * 1.2) for at in range(20)], [(3, 15)], 100.0, id="a slow clock"
        ),
        pytest.param(every_second(0, 30), [(3, 5), (10, 12)], 100.0, id="two runs"),
        pytest.param([], [(3, 5)], 0.0, id="no sample at all"),
        pytest.param(every_second(0, 30), [], 0.0, id="no window"),
    ],
)
def test_coverage_is_the_sampled_share(
    readings: list[Reading], spans: list[tuple[float, float]], coverage: float
) -> None:
    assert monitoring_of(readings, *spans).coverage_percent == pytest.approx(coverage)


@pytest.mark.parametrize(
    ("gap", "covered_percent"), [(1.5, 100.0), (3.0, 100.0), (3.5, 100.0 * 1.5 / 3.5)]
)
def test_gap_is_judged_by_the_longer_interval(gap: float, covered_percent: float) -> None:
    readings = [make_reading(10.0), make_reading(10.0 + gap, interval_seconds=2.0)]

    monitoring = monitoring_of(readings, (10.0, 10.0 + gap))

    assert monitoring.coverage_percent == pytest.approx(covered_percent)


def test_window_without_samples_keeps_its_gpus() -> None:
    monitoring = monitoring_of([], (10.0, 15.0))

    assert monitoring.sample_count == 0
    assert monitoring.coverage_percent == 0
    assert monitoring.energy_wh is None
    assert monitoring.gpu_stats["0"].utilization.samples == 0
    assert monitoring.gpu_stats["0"].power_draw_w == Spread()


def test_a_power_limit_shows_beside_the_power_drawn() -> None:
    readings = every_second(0, 10, power_limit_w=700.0) + every_second(11, 20, power_limit_w=450.0)

    stats = monitoring_of(readings, (0.0, 20.0)).gpu_stats["0"]

    assert (stats.power_limit_w.min, stats.power_limit_w.max) == (450.0, 700.0)


def test_unknown_is_not_counted_as_zero() -> None:
    readings = every_second(0, 20, power_draw_w=None)
    readings += [make_reading(21, utilization_percent=None, power_draw_w=None)]

    monitoring = monitoring_of(readings, (0.0, 21.0))

    stats = monitoring.gpu_stats["0"]
    assert stats.power_draw_w == Spread()
    assert monitoring.energy_wh is None
    assert monitoring.sample_count == 22
    assert stats.utilization.samples == 21
    assert stats.utilization.min == 80.0


def test_several_nodes_are_told_apart_in_the_keys() -> None:
    devices = [make_device(0), make_device(0, node_id="node-b")]
    readings = {KEY: every_second(0, 10), ("node-b", "GPU-0"): every_second(0, 5)}

    monitoring = summarize(Run(devices, [Span(0, 10)]), readings, simulated=True)

    assert set(monitoring.gpu_stats) == {"node-a/0", "node-b/0"}
    assert monitoring.sample_count == 11
    assert monitoring.coverage_percent == pytest.approx(77.5)
    assert monitoring.simulated


def test_least_seen_gpu_decides() -> None:
    devices = [make_device(0), make_device(1)]
    readings = {KEY: every_second(0, 20), ("node-a", "GPU-1"): every_second(0, 13)}

    both = summarize(Run(devices, [Span(0, 20)]), readings, simulated=False)
    none = summarize(Run([], [Span(0, 20)]), readings, simulated=False)

    assert both.longest_gap_seconds == both.gpu_details["1"].longest_gap_seconds == 6.5
    assert both.gpu_details["0"].longest_gap_seconds < 2.0
    assert "GPU 1 without one for 6.5 s" in both.untrusted_because
    assert (none.longest_gap_seconds, none.missing_ticks, none.sample_count) == (0.0, 0, 0)


@pytest.mark.parametrize(("last", "trusted"), [(18.5, True), (17.5, False)])
def test_samples_covering_95_percent_are_trusted(last: float, trusted: bool) -> None:
    monitoring = monitoring_of(every_second(0.5, last), (0.0, 20.0))

    assert monitoring.trusted is trusted
    assert ("samples cover 90.0 %" in monitoring.untrusted_because) is not trusted


@pytest.mark.parametrize(
    ("counted", "source"),
    [((), EnergySource.POWER), ((1,), EnergySource.MIXED), ((0, 1), EnergySource.COUNTER)],
)
def test_energy_of_gpus_tells_its_sources(counted: tuple[int, ...], source: EnergySource) -> None:
    readings = {
        ("node-a", f"GPU-{index}"): [
            make_reading(at, energy_mj=100_000 * (at + 1) if index in counted else None)
            for at in range(11)
        ]
        for index in range(2)
    }
    run = Run([make_device(0), make_device(1)], [Span(0, 10)])

    assert summarize(run, readings, simulated=False).energy_source is source


def test_no_energy_is_no_measure_of_tokens() -> None:
    run = Run([make_device()], [Span(0, 10)], output_tokens=100.0)
    readings = {KEY: every_second(0, 10, power_draw_w=0.0)}

    monitoring = summarize(run, readings, simulated=False)

    assert (monitoring.energy_wh, monitoring.tokens_per_joule) == (0.0, None)


@pytest.mark.parametrize(
    ("readings", "energy_wh"),
    [
        pytest.param(every_second(-2, 14), 1.0, id="constant 360 W for 10 s"),
        pytest.param(
            [make_reading(t, power_draw_w=72.0 * t) for t in range(-2, 14)], 1.0, id="a ramp"
        ),
        pytest.param(
            [make_reading(t, energy_mj=720_000 * (t + 2)) for t in range(-2, 14)],
            2.0,
            id="the counter goes before power",
        ),
        pytest.param(
            [make_reading(t, energy_mj=720_000 * (t % 5)) for t in range(16)],
            1.0,
            id="a counter that was reset does not count",
        ),
        pytest.param(
            [
                make_reading(t, energy_mj=720_000 * (t + 2) if t != 5 else None)
                for t in range(-2, 14)
            ],
            1.0,
            id="a counter with a hole does not count",
        ),
        pytest.param([make_reading(5.0)], 0.1, id="one reading stands for one interval"),
        pytest.param(
            [make_reading(5.0, energy_mj=5_000)], 0.1, id="one counter says nothing of its use"
        ),
        pytest.param(
            [make_reading(4.0), make_reading(6.0, power_draw_w=720.0, interval_seconds=2.0)],
            (0.5 * 360 + 2 * 540 + 1 * 720) / 3600,
            id="the first and the last stand for half of their own intervals",
        ),
        pytest.param(every_second(0, 12, power_draw_w=None), None, id="unknown"),
    ],
)
def test_energy_of_ten_seconds(readings: list[Reading], energy_wh: float | None) -> None:
    energy = monitoring_of(readings, (0.0, 10.0)).energy_wh

    assert energy == (pytest.approx(energy_wh) if energy_wh is not None else None)


def test_energy_between_readings_is_interpolated() -> None:
    energy = monitoring_of(every_second(-2, 14), (0.5, 1.75)).energy_wh

    assert energy == pytest.approx(1.25 * 360 / 3600)


def test_overlapping_windows_count_once() -> None:
    def window(start: int, end: int) -> Window:
        return Window(
            started_at=datetime.fromtimestamp(start, UTC),
            finished_at=datetime.fromtimestamp(end, UTC),
        )

    spans = union_of([window(20, 30), window(0, 10), window(5, 12), window(9, 3)])

    assert spans == [Span(0, 12), Span(20, 30)]


@given(order=st.permutations(range(16)), repeated=st.lists(st.integers(0, 15)))
def test_order_and_duplicates_change_nothing(order: list[int], repeated: list[int]) -> None:
    readings = [make_reading(t + 0.25, utilization_percent=float(t)) for t in range(16)]

    shuffled = [readings[position] for position in [*order, *repeated]]

    assert monitoring_of(shuffled, (2.0, 12.0)) == monitoring_of(readings, (2.0, 12.0))


@given(
    st.lists(st.floats(0, 100) | st.none(), max_size=40),
    st.floats(0, 20),
    st.floats(0.1, 30),
)
def test_what_is_told_stays_within_what_was_read(
    values: list[float | None], start: float, length: float
) -> None:
    readings = [make_reading(t, utilization_percent=value) for t, value in enumerate(values)]

    monitoring = monitoring_of(readings, (start, start + length))

    spread = monitoring.gpu_stats["0"].utilization
    assert 0 <= monitoring.coverage_percent <= 100
    assert spread.samples <= monitoring.sample_count
    if spread.min is not None and spread.max is not None and spread.mean is not None:
        assert spread.min <= spread.mean <= spread.max
    else:
        assert spread.samples == 0
