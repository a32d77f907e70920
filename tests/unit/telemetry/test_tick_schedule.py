"""The schedule of readings and the words for throttling."""

import pytest

from services.telemetry.domain.throttle import throttle_reasons
from services.telemetry.domain.tick_schedule import TickGrid


@pytest.mark.parametrize(
    ("now", "last", "want"),
    [
        pytest.param(100.2, 0, (101.0, 0), id="in time"),
        pytest.param(100.9, 0, (101.0, 0), id="late and still in time"),
        pytest.param(101.0, 0, (102.0, 1), id="over as the slot begins"),
        pytest.param(104.7, 1, (105.0, 3), id="slots that passed are skipped"),
        pytest.param(100.0, 3, (104.0, 0), id="never a slot twice"),
    ],
)
def test_the_next_slot_is_on_the_grid_and_ahead(
    now: float, last: int, want: tuple[float, int]
) -> None:
    assert TickGrid(100.0, 1.0, last_slot=last).next_slot(now) == want


def test_a_thousand_late_ticks_do_not_shift_the_grid() -> None:
    grid, now, due_at, all_missed = TickGrid(50.0, 0.1), 50.03, 50.0, 0
    for _ in range(1000):
        due_at, missed = grid.next_slot(now)
        now, all_missed = due_at + 0.03, all_missed + missed

    assert all_missed == 0
    assert grid.last_slot == 1000
    assert due_at == pytest.approx(150.0)


@pytest.mark.parametrize(
    ("mask", "want"),
    [(0, ()), (0x1, ("gpu_idle",)), (0x44, ("sw_power_cap", "hw_thermal_slowdown"))],
)
def test_throttle_reasons_are_named(mask: int, want: tuple[str, ...]) -> None:
    assert throttle_reasons(mask) == want


def test_a_reason_without_a_name_is_shown_as_its_bit() -> None:
    assert throttle_reasons(1 << 20 | 0x8) == ("hw_slowdown", "0x100000")
