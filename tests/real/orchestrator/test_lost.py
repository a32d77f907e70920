"""An attempt on a node that never comes back: only a confirmed stop ends it."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from schemas.executor.attempts import AttemptOutcome
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.scheduler.reservations import ReservationState
from services.orchestrator.app import create_service
from services.orchestrator.settings import OrchestratorSettings
from shared.testing import eventually
from tests.support.worlds.orchestrator import World, scripted_world, task_file


@pytest.fixture
async def world(nats_url: str, postgres_dsn: str) -> AsyncIterator[World]:
    settings = OrchestratorSettings(
        nats_url=nats_url,
        postgres_dsn=postgres_dsn,
        repair_interval_seconds=0.2,
        repair_after_seconds=0.2,
    )
    async with scripted_world(nats_url) as running, create_service(settings).running():
        yield running


async def test_attempt_on_a_lost_node_is_repeated(
    world: World,
) -> None:
    world.auto_run = False
    task_id = await world.submit(task_file(parameters={"slots": [1]}))
    await eventually(lambda: len(world.starts) == 1)
    reservation_id = world.starts[0].reservation_id
    asked_before = world.asked
    world.executor_gone = True
    world.reservations[reservation_id] = replace(
        world.reservations[reservation_id],
        state=ReservationState.LOST,
        revision=3,
        quarantined=True,
        reason="node lost: not heard for 120 s",
    )

    await eventually(lambda: world.asked >= asked_before + 3, what="several looks at the lost one")
    assert len(world.starts) == 1, "quarantined is not stopped"
    world.reservations[reservation_id] = replace(
        world.reservations[reservation_id], quarantined=False
    )
    await eventually(lambda: len(world.starts) == 2, what="the next attempt")

    (experiment,) = await world.experiments(task_id)
    first = experiment.attempts[0]
    assert first.outcome is AttemptOutcome.INTERRUPTED
    assert first.failure is not None
    assert "node lost" in first.failure.message
    assert world.starts[1].attempt_number == 2
    assert experiment.state in {ExperimentState.STARTING, ExperimentState.RUNNING}
    world.executor_gone = False
    await world.finish(world.starts[1])
    await world.until(task_id, TaskState.COMPLETED)
