"""Percentiles, throttling, errors, neighbours and trust in an experiment's samples."""

import statistics
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.gpus.device_grant import DeviceGrant, DeviceShare, ShareKind
from schemas.results.measurements import CoTenant, EnergySource, GpuMonitoring, Percentiles
from services.results.domain.details import Fault, percentiles
from services.results.domain.monitoring import Run, summarize
from services.results.domain.reading import Condition, Reading, Span, Tenant

OWN, OTHER = UUID(int=1), UUID(int=2)
FINITE = st.floats(-1e6, 1e6)


def make_reading(at: float, **overrides: Any) -> Reading:
    fields: dict[str, Any] = {
        "at": at,
        "interval_seconds": 1.0,
        "boot_id": UUID(int=7),
        "sequence": int(at),
        "power_draw_w": 360.0,
    }
    return Reading(**{**fields, **overrides})


def measured(
    readings: dict[str, list[Reading]] | list[Reading],
    span: tuple[float, float] = (10.0, 20.0),
    *,
    tokens: float | None = None,
    prices: dict[str, float] | None = None,
    share: DeviceShare | None = None,
    **known: Any,
) -> GpuMonitoring:
    of_device = readings if isinstance(readings, dict) else {"GPU-0": readings}
    devices = [
        DeviceGrant(node_id="node-a", uuid=uuid, index=index, name="A100", share=share)
        for index, uuid in enumerate(of_device)
    ]
    run = Run(devices, [Span(*span)], reservation_id=OWN, output_tokens=tokens, prices=prices or {})
    found = {("node-a", uuid): each for uuid, each in of_device.items()}
    return summarize(run, found, simulated=False, **known)


@given(st.lists(FINITE, min_size=2, max_size=50))
def test_percentiles_are_between_neighbours(values: list[float]) -> None:
    cuts = statistics.quantiles(values, n=100, method="inclusive")

    found = percentiles([None, *values])

    assert found.p50 == pytest.approx(cuts[49], abs=1e-6)
    assert found.p95 == pytest.approx(cuts[94], abs=1e-6)
    assert percentiles([None]) == Percentiles()


def test_harmful_throttling_is_counted() -> None:
    conditions = {
        1: Condition(("gpu_idle",), None),
        2: Condition(("sw_power_cap",), None),
        3: Condition(("sw_power_cap", "hw_thermal_slowdown"), None),
    }
    numbers = [1, 1, 1, 2, 2, 3, 1, 1, 1, 1, 1, 1, 1]
    readings = [make_reading(9.5 + n, condition_no=no) for n, no in enumerate(numbers)]

    details = measured(readings, conditions=conditions).gpu_details["0"]
    unknown = measured([make_reading(15.0)]).gpu_details["0"]
    none = measured(readings[6:], conditions=conditions).gpu_details["0"]

    assert details.throttled_seconds == pytest.approx(3.0)
    assert details.throttle_reasons == pytest.approx(
        {"sw_power_cap": 3.0, "hw_thermal_slowdown": 1.0}
    )
    assert (unknown.throttled_seconds, none.throttled_seconds) == (None, 0.0)


def test_errors_count_from_before_the_window() -> None:
    readings = [
        make_reading(9.0, ecc_corrected=4, ecc_uncorrected=0),
        make_reading(12.0, ecc_corrected=6),
        make_reading(14.0, ecc_corrected=1),  # the driver was loaded anew
        make_reading(19.0, ecc_corrected=2, ecc_uncorrected=0),
        make_reading(25.0, ecc_corrected=90),
    ]
    faults = [
        Fault("node-a", "GPU-0", 19.0, 79),
        Fault("node-a", "GPU-0", 11.0, 13),
        Fault("node-a", "GPU-0", 20.0, 74),
        Fault("node-a", "GPU-0", 10.0, 63),
        Fault("node-a", "GPU-0", 21.0, 31),
        Fault("node-a", "GPU-1", 12.0, 94),
        Fault("node-b", "GPU-0", 12.0, 48),
    ]

    details = measured(readings, faults=faults).gpu_details["0"]

    assert (details.ecc_corrected, details.ecc_uncorrected) == (3, 0)
    assert details.xids == (63, 13, 79, 74)
    assert measured([make_reading(15.0)]).gpu_details["0"].ecc_corrected is None


def test_errors_between_windows_count() -> None:
    counts = {5.0: 1, 9.0: 4, 10.0: 5, 15.0: 6, 23.0: 9, 30.0: 11, 31.0: 20}
    device = DeviceGrant(node_id="node-a", uuid="GPU-0", index=0, name="A100")
    readings = [make_reading(at, ecc_corrected=count) for at, count in counts.items()]

    found = summarize(
        Run([device], [Span(10.0, 20.0), Span(24.0, 30.0)]),
        {("node-a", "GPU-0"): readings},
        simulated=False,
    )

    assert found.gpu_details["0"].ecc_corrected == 11 - 4


def test_who_else_was_there_is_named_with_the_time() -> None:
    own, other = Tenant(OWN), Tenant(OTHER)
    conditions = {
        1: Condition(None, (own,)),
        2: Condition(None, (own, other)),
        3: Condition(None, (own, other, Tenant(None, "python"), Tenant(None, "bash"))),
    }
    numbers = [1, 1, 1, 2, 2, 3, 1, 1, 1, 1, 1, 1, 1]
    readings = [make_reading(9.5 + n, condition_no=no) for n, no in enumerate(numbers)]

    found = measured(readings, conditions=conditions).gpu_details["0"].co_tenants

    assert found == (
        CoTenant(seconds=pytest.approx(1.0), name="bash"),  # type: ignore[arg-type]
        CoTenant(seconds=pytest.approx(1.0), name="python"),  # type: ignore[arg-type]
        CoTenant(seconds=pytest.approx(3.0), reservation_id=OTHER),  # type: ignore[arg-type]
    )


def test_million_tokens_cost_their_gpus() -> None:
    """10 s of two GPUs at 3.6 an hour are 0.02; of a quarter of one 0.0025."""
    readings = [make_reading(9.5 + n) for n in range(13)]
    both = {"GPU-0": readings, "GPU-1": readings}
    quarter = DeviceShare(kind=ShareKind.MPS, shares=0.25)

    def cost(**known: Any) -> float | None:
        return measured(known.pop("of", both), **known).cost_per_million_tokens

    assert cost(tokens=1000.0, prices={"a100": 3.6}) == pytest.approx(20.0)
    assert cost(of=readings, tokens=1000.0, prices={"a100": 3.6}, share=quarter) == pytest.approx(
        2.5
    )
    assert cost(tokens=1000.0, prices={"a100": 0.0}) == 0.0
    assert cost(tokens=1000.0, prices={"h200": 3.6}) is None
    assert cost(tokens=0.0, prices={"a100": 3.6}) is None
    assert cost(prices={"a100": 3.6}) is None


def test_energy_tells_source_and_use_per_joule() -> None:
    by_power = [make_reading(9.5 + n) for n in range(13)]
    by_counter = [make_reading(9.5 + n, energy_mj=n * 180_000) for n in range(13)]

    power = measured(by_power, tokens=7200.0)
    counter = measured(by_counter)
    both = measured({"GPU-0": by_power, "GPU-1": by_counter}, tokens=7200.0)

    assert power.energy_wh == pytest.approx(1.0)
    assert power.energy_source is EnergySource.POWER
    assert power.tokens_per_joule == pytest.approx(2.0)
    assert counter.energy_wh == pytest.approx(0.5)
    assert counter.energy_source is EnergySource.COUNTER
    assert counter.tokens_per_joule is None
    assert both.energy_wh == pytest.approx(1.5)
    assert both.energy_source is EnergySource.MIXED
    assert both.gpu_details["1"].energy_source is EnergySource.COUNTER
    assert measured([]).energy_source is None


def test_little_coverage_is_not_trusted_and_says_why() -> None:
    readings = [make_reading(9.5 + n) for n in range(13)]
    gap = [r for r in readings if not 13 < r.at < 16]

    whole = measured(readings)
    holed = measured({"GPU-0": readings, "GPU-1": gap})
    one_silent = measured({"GPU-0": readings, "GPU-1": []})
    silent = measured([])
    empty = measured(readings, (10.0, 10.0))

    assert (whole.trusted, whole.untrusted_because) == (True, "")
    assert (whole.longest_gap_seconds, whole.missing_ticks) == (0.0, 0)
    assert holed.longest_gap_seconds == pytest.approx(3.0)
    assert holed.missing_ticks == 3
    assert not holed.trusted
    assert holed.untrusted_because == (
        "samples cover 85.0 %, expected 95 %; GPU 1 without one for 3 s; 3 ticks never came"
    )
    assert one_silent.untrusted_because == (
        "samples cover 50.0 %, expected 95 %; none of GPU 1; GPU 1 without one for 10 s"
    )
    assert silent.untrusted_because == "no sample in 10 s"
    assert empty.untrusted_because == "nothing was measured"
