"""Which consumers are taken for silent."""

import pytest

from shared.messaging.consumer_progress import ConsumerState, Standstill

WAITING = ConsumerState(deliveries=5, pending=3, unsettled=0)


def seconds_after(*states: ConsumerState) -> list[float]:
    standstill = Standstill()
    return [standstill.seconds(state, float(now)) for now, state in enumerate(states)]


@pytest.mark.parametrize(
    ("later", "want"),
    [
        pytest.param(WAITING, [0, 1, 2], id="nothing is handed out"),
        pytest.param(ConsumerState(6, 3, 1), [0, 0, 1], id="something was"),
        pytest.param(ConsumerState(5, 0, 0), [0, 0, 0], id="nothing waits"),
    ],
)
def test_only_what_waits_without_deliveries_is_still(
    later: ConsumerState, want: list[float]
) -> None:
    assert seconds_after(WAITING, later, later) == want


def test_what_came_after_idleness_waits_from_then_on() -> None:
    idle = ConsumerState(deliveries=5, pending=0, unsettled=0)

    assert seconds_after(idle, idle, WAITING, WAITING) == [0, 0, 0, 1]


def test_busy_consumer_is_given_longer() -> None:
    standstill = Standstill()
    standstill.seconds(WAITING, 0.0)
    idle_limit = standstill.limit_seconds

    standstill.seconds(ConsumerState(6, 3, 1), 1.0)

    assert standstill.limit_seconds > 2 * idle_limit
