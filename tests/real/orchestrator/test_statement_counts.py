"""How many statements an event costs the orchestrator's Postgres."""

from collections.abc import AsyncIterator
from statistics import fmean
from typing import Any

import pytest

from schemas.orchestrator.experiments import TaskState
from services.orchestrator.app import create_service
from services.orchestrator.event_handlers import EventHandlers
from services.orchestrator.handlers.submissions import SubmissionHandlers
from services.orchestrator.settings import OrchestratorSettings
from tests.support.statement_counts import StatementCounts
from tests.support.worlds.orchestrator import World, task_file


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> StatementCounts:
    counts = StatementCounts(monkeypatch)
    counts.watch(EventHandlers, "on_granted", "on_attempt", "on_summarized")
    counts.watch(SubmissionHandlers, "submit_task")
    return counts


@pytest.fixture
async def service(
    nats_url: str, postgres_dsn: str, world: World, counts: StatementCounts
) -> AsyncIterator[None]:
    service = create_service(OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn))
    async with service.running():
        yield


@pytest.mark.parametrize(
    ("optimization", "submission", "mean", "most"),
    [
        # A submission reads the offers twice where no executor has reported yet.
        pytest.param({"strategy": "grid_search"}, 9, 4.75, 9, id="grid"),
        # A proposal is made between two transactions, of which the first is rolled back.
        pytest.param({"strategy": "bayesian", "max_iterations": 4}, 9, 5.75, 13, id="search"),
    ],
)
async def test_an_event_takes_few_statements(
    world: World,
    service: None,
    counts: StatementCounts,
    optimization: dict[str, Any],
    submission: int,
    mean: float,
    most: int,
) -> None:
    file = task_file("counted", parameters={"slots": [1, 2, 3, 4]}, optimization=optimization)
    task_id = await world.submit(file)

    await world.until(task_id, TaskState.COMPLETED)

    [submitting] = counts.calls.pop("submit_task")
    events = [len(statements) for calls in counts.calls.values() for statements in calls]
    assert len(submitting) <= submission, submitting
    assert len(events) == 16
    assert fmean(events) <= mean, dict(counts.calls)
    assert max(events) <= most, max(counts.calls["on_attempt"], key=len)
