"""What a simulated device shows while it is idle, taken and given back."""

import pytest

from schemas.telemetry.readings import DeviceFacts, GpuReading
from services.telemetry.sources.simulated.fleet_file import LoadShape
from services.telemetry.sources.simulated.load import DeviceLoad, load_from, reading_at, warmth_at

SHAPE = LoadShape(ramp_seconds=4.0, thermal_seconds=10.0)
IDLE = DeviceLoad()
HELD = DeviceLoad(is_held=True, since_seconds=100.0)


def read(
    load: DeviceLoad,
    seconds: float,
    *,
    total_mb: int | None = 80_000,
    limit_w: float | None = None,
    shape: LoadShape = SHAPE,
) -> GpuReading:
    facts = DeviceFacts(uuid="GPU-a", index=0, name="Simulated", memory_total_mb=total_mb)
    return reading_at(facts, load, shape, seconds=seconds, power_limit_w=limit_w)


def test_idle_device_holds_little() -> None:
    reading = read(IDLE, 50.0)

    assert (reading.utilization_percent, reading.memory_used_mb) == (0.0, 620)
    assert reading.memory_free_mb == 80_000 - 620
    assert reading.sm_clock_mhz == 345
    assert reading.throttle_reasons == ("gpu_idle",)
    assert reading.temperature_c == pytest.approx(31.0, abs=1.0)
    assert (reading.ecc_corrected, reading.ecc_uncorrected) == (0, 0)


@pytest.mark.parametrize(
    ("seconds", "used_mb", "clock_mhz"),
    [(100.0, 620, 345), (102.0, 34_310, 1162), (104.0, 68_000, 1980), (900.0, 68_000, 1980)],
)
def test_a_held_device_fills_its_memory_in_the_ramp(
    seconds: float, used_mb: int, clock_mhz: int
) -> None:
    reading = read(HELD, seconds)

    assert (reading.memory_used_mb, reading.sm_clock_mhz) == (used_mb, clock_mhz)
    assert reading.memory_total_mb == 80_000


def test_a_held_device_works_hard_and_grows_warm() -> None:
    readings = [read(HELD, 200.0 + second) for second in range(50)]

    assert all(86 <= (each.utilization_percent or 0) <= 98 for each in readings)
    assert len({each.utilization_percent for each in readings}) > 3
    assert all(66 <= (each.temperature_c or 0) <= 70 for each in readings)
    assert {each.throttle_reasons for each in readings} == {()}


def test_limit_below_draw_slows_the_clock() -> None:
    free = read(HELD, 200.0)
    assert free.power_draw_w is not None
    assert free.sm_clock_mhz is not None

    capped = read(HELD, 200.0, limit_w=free.power_draw_w / 2)

    assert capped.power_draw_w == pytest.approx(free.power_draw_w / 2, abs=0.01)
    assert capped.sm_clock_mhz == pytest.approx(free.sm_clock_mhz / 2, abs=1)
    assert capped.throttle_reasons == ("sw_power_cap",)
    assert capped.power_limit_w == pytest.approx(free.power_draw_w / 2)


@pytest.mark.parametrize(("total_mb", "used_mb"), [(None, 0), (0, 0), (500, 500)])
def test_no_device_uses_more_memory_than_it_has(total_mb: int | None, used_mb: int) -> None:
    reading = read(IDLE, 1.0, total_mb=total_mb)

    assert (reading.memory_total_mb, reading.memory_used_mb) == (total_mb or 0, used_mb)


def test_a_device_without_power_is_not_slowed() -> None:
    shape = LoadShape(idle_power_w=0, held_power_w=0, power_limit_w=0)

    reading = read(HELD, 900.0, shape=shape)

    assert (reading.power_draw_w, reading.sm_clock_mhz) == (0.0, 1980)
    assert reading.throttle_reasons == ()


def test_a_device_cools_down_from_where_it_was() -> None:
    assert load_from(HELD, SHAPE, is_held=True, seconds=105.0) is HELD

    released = load_from(HELD, SHAPE, is_held=False, seconds=110.0)

    assert (released.is_held, released.since_seconds) == (False, 110.0)
    assert released.warmth == pytest.approx(1 - 0.3679, abs=1e-4)
    assert warmth_at(released, SHAPE, 110.0) == released.warmth
    assert warmth_at(released, SHAPE, 120.0) == pytest.approx(released.warmth * 0.3679, abs=1e-4)
    assert read(released, 110.0).memory_used_mb == 620
