"""How far a request is behind the highest priority that waits."""

from datetime import timedelta

import pytest

from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.queue.fairness import Levels
from services.scheduler.domain.queue.order import seniority_of
from tests.unit.scheduler.builders import NOW, make_queued

MOMENT = NOW + timedelta(seconds=7)  # within a tick


@pytest.mark.parametrize(
    ("priority", "waited_seconds", "behind"),
    [(3, 0, 0), (2, 0, 1), (0, 0, 3), (2, 60, 0), (0, 60, 2), (0, 600, 0)],
)
def test_waiting_tick_is_worth_one_priority(
    priority: int, waited_seconds: float, behind: int
) -> None:
    queued_at = MOMENT - timedelta(seconds=waited_seconds)
    entry = make_queued(1, GpuRequest(priority=priority), queued_at=queued_at)

    levels = Levels.of(3, 60.0, MOMENT)

    assert levels.behind(seniority_of(entry, 60.0)[0]) == behind


def test_without_aging_a_point_is_a_point() -> None:
    entry = make_queued(1, GpuRequest(priority=1), queued_at=NOW)

    assert Levels.of(3, 0.0, MOMENT).behind(seniority_of(entry, 0.0)[0]) == 2
