"""Times told while somebody sets the clock."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.telemetry.clock import NodeClock
from services.telemetry.domain.monotonic_clock import MonotonicClock


class SteppedClock:
    """A wall clock that is set, and a monotonic one that is not; stands for the host's."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_700_000_000.0, 50.0

    def pass_time(self, seconds: float, *, step: float = 0.0) -> None:
        self.wall += seconds + step
        self.monotonic += seconds


def test_a_step_forward_is_followed_at_once() -> None:
    line = MonotonicClock(100.0, 0.0)

    assert line.read(101.0, 1.0) == 101.0
    assert line.read(3702.0, 2.0) == 3702.0
    assert line.stepped_seconds == pytest.approx(3600.0)
    assert line.read(3703.0, 3.0) == 3703.0
    assert line.stepped_seconds == 0.0


def test_clock_set_back_slows_time_until_caught_up() -> None:
    clock = SteppedClock()
    node_clock = NodeClock(lambda: clock.wall, lambda: clock.monotonic)
    before = node_clock.now()
    clock.pass_time(1.0, step=-60.0)

    told = [node_clock.now()]
    for _ in range(70):
        clock.pass_time(1.0)
        told.append(node_clock.now())

    assert told[0] > before
    assert all(later > earlier for earlier, later in pairwise(told))
    assert (told[30] - before).total_seconds() == pytest.approx(3.1)
    assert told[-1].timestamp() == pytest.approx(clock.wall)


@given(
    st.lists(
        st.tuples(st.floats(0.0, 100.0), st.floats(-1e6, 1e6)),
        max_size=30,
    )
)
def test_time_never_runs_backwards(
    steps: list[tuple[float, float]],
) -> None:
    clock = SteppedClock()
    line = MonotonicClock(clock.wall, clock.monotonic)
    told = clock.wall
    for seconds, step in steps:
        clock.pass_time(seconds, step=step)
        now = line.read(clock.wall, clock.monotonic)
        assert now >= told
        assert now >= clock.wall
        told = now
