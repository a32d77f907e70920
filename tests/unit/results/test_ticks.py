"""Which ticks of an agent are known."""

from hypothesis import given
from hypothesis import strategies as st

from services.results.domain.ticks import (
    MAX_STRETCHES,
    STRETCHES_LEFT,
    give_up_gaps,
    is_in,
    stretches_of,
)


@given(st.sets(st.integers(0, 60), min_size=1), st.integers(-1, 61))
def test_stretches_hold_the_ticks_and_no_others(ticks: set[int], tick: int) -> None:
    stretches = stretches_of(sorted(ticks))

    assert is_in(stretches, tick) == (tick in ticks)
    assert all(first < end for first, end in stretches)


def test_the_oldest_of_too_many_gaps_are_given_up() -> None:
    every_other = [(tick, tick + 1) for tick in range(0, 2 * MAX_STRETCHES + 2, 2)]

    [(first, end)], missing = give_up_gaps(every_other)

    assert first == 0
    assert sum(1 for stretch in every_other if stretch[0] >= end) == STRETCHES_LEFT
    assert missing == MAX_STRETCHES - STRETCHES_LEFT
    assert give_up_gaps(every_other[:MAX_STRETCHES]) == ([], 0)


def test_missing_ticks_ignore_the_agents_age() -> None:
    late = [(tick, tick + 1) for tick in range(900, 900 + 2 * MAX_STRETCHES + 2, 2)]

    assert give_up_gaps(late)[1] == MAX_STRETCHES - STRETCHES_LEFT
