"""Readings under OpenTelemetry's names, and the bound on those that wait."""

from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from opentelemetry.semconv._incubating.metrics import hw_metrics

from schemas.telemetry.readings import GpuReading
from services.results.domain import otlp_names
from services.results.domain.otlp_names import INSTRUMENTS, Kind
from services.results.otlp_export import MAX_WAITING, Holder, OtlpExport, request_of
from shared.clock import utcnow
from tests.support.worlds.results import NODE, every_second, make_sample

ROOT = Path(__file__).parents[3]


def test_otel_names_are_conventional_and_documented() -> None:
    known = {value for value in vars(hw_metrics).values() if isinstance(value, str)}
    page = (ROOT / "docs/how-to/operate/send-to-opentelemetry.md").read_text()

    assert {each.name for each in INSTRUMENTS} <= known
    for name in (*(each.name for each in INSTRUMENTS), otlp_names.RESERVATION, otlp_names.PHASE):
        assert f"`{name}`" in page


def test_full_queue_drops_and_counts_the_oldest() -> None:
    export = OtlpExport(cast("Any", None), "http://collector:4318")
    samples = every_second(utcnow(), 30, gpus=1_000)

    export.put(samples)

    assert export.dropped_readings == 30_000 - MAX_WAITING
    assert list(export._waiting) == samples[10:]  # noqa: SLF001  # the bound is what is tested


def test_reading_before_the_grant_is_not_the_holders() -> None:
    now = utcnow()
    before, after = make_sample(now, 1, gpus=1), make_sample(now + timedelta(seconds=2), 2, gpus=1)
    holder = Holder(now + timedelta(seconds=1), {otlp_names.RESERVATION: "r"})

    data = request_of([before, after], {(NODE, "GPU-0"): holder})

    [power] = [
        metric
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        if metric.name == "hw.power"
    ]
    held = [
        otlp_names.RESERVATION in {pair.key for pair in point.attributes}
        for point in power.gauge.data_points
    ]
    assert held == [False, True]


def test_each_value_is_in_the_unit_of_its_convention() -> None:
    gpu = GpuReading(
        uuid="GPU-0",
        index=0,
        utilization_percent=80.0,
        memory_used_mb=1,
        memory_total_mb=2,
        temperature_c=60.0,
        power_draw_w=360.0,
        energy_mj=5_000,
    )

    assert {each.name: each.read(gpu) for each in INSTRUMENTS} == {
        "hw.gpu.utilization": 0.8,
        "hw.gpu.memory.usage": 1_048_576,
        "hw.gpu.memory.limit": 2_097_152,
        "hw.temperature": 60.0,
        "hw.power": 360.0,
        "hw.energy": 5.0,
    }


def test_counters_and_gauges_are_told_apart() -> None:
    [of_node] = request_of([make_sample(utcnow(), 1, energy_mj=5_000)], {}).resource_metrics
    sums = {
        metric.name: metric.sum.is_monotonic
        for metric in of_node.scope_metrics[0].metrics
        if metric.HasField("sum")
    }

    assert sums == {
        each.name: each.kind is Kind.COUNTER for each in INSTRUMENTS if each.kind is not Kind.GAUGE
    }
