"""Silence counts only while this process could hear."""

from dataclasses import dataclass

import pytest

from services.scheduler.hearing import Hearing


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hearing(clock: Clock) -> Hearing:
    return Hearing(longest_gap_seconds=30.0, clock=clock)


def test_a_start_is_no_silence(hearing: Hearing, clock: Clock) -> None:
    clock.now += 4.0

    assert hearing.silence("alpha") == 4.0
    assert hearing.agent_silence("alpha") == (4.0, False)


def test_a_node_is_as_silent_as_whatever_was_heard_of_it_last(
    hearing: Hearing, clock: Clock
) -> None:
    hearing.hear_agent("alpha")
    clock.now += 10.0
    hearing.hear_executor("alpha")
    clock.now += 5.0

    assert hearing.silence("alpha") == 5.0
    assert hearing.agent_silence("alpha") == (15.0, True)


@pytest.mark.parametrize(
    ("gap_seconds", "can_hear"),
    [
        pytest.param(10.0, False, id="an outage of the bus"),
        pytest.param(600.0, True, id="a pause of this process"),
    ],
)
def test_silence_begins_anew_after(
    hearing: Hearing, clock: Clock, gap_seconds: float, *, can_hear: bool
) -> None:
    hearing.hear_agent("alpha")
    clock.now += gap_seconds

    assert hearing.look(can_hear=can_hear) == 0.0

    clock.now += 3.0
    assert hearing.silence("alpha") == 3.0
    assert hearing.agent_silence("alpha") == (3.0, False)
    assert hearing.look(can_hear=True) == 3.0
