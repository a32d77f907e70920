"""Silence counts only while this process could hear."""

from dataclasses import dataclass

import pytest

from services.scheduler.observations.node_liveness import NodeLiveness


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def liveness(clock: Clock) -> NodeLiveness:
    return NodeLiveness(longest_gap_seconds=30.0, clock=clock)


def test_a_start_is_no_silence(liveness: NodeLiveness, clock: Clock) -> None:
    clock.now += 4.0

    assert liveness.silence("alpha") == 4.0
    assert liveness.agent_silence("alpha") == (4.0, False)


def test_node_silence_starts_at_its_last_message(liveness: NodeLiveness, clock: Clock) -> None:
    liveness.record_agent("alpha")
    clock.now += 10.0
    liveness.record_executor("alpha")
    clock.now += 5.0

    assert liveness.silence("alpha") == 5.0
    assert liveness.agent_silence("alpha") == (15.0, True)


@pytest.mark.parametrize(
    ("gap_seconds", "is_connected"),
    [
        pytest.param(10.0, False, id="an outage of the bus"),
        pytest.param(600.0, True, id="a pause of this process"),
    ],
)
def test_silence_begins_anew_after(
    liveness: NodeLiveness, clock: Clock, gap_seconds: float, *, is_connected: bool
) -> None:
    liveness.record_agent("alpha")
    clock.now += gap_seconds

    assert liveness.check(is_connected=is_connected) == 0.0

    clock.now += 3.0
    assert liveness.silence("alpha") == 3.0
    assert liveness.agent_silence("alpha") == (3.0, False)
    assert liveness.check(is_connected=True) == 3.0
