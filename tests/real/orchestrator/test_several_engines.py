"""A task over several engines over a real nats-server and Postgres: one that cannot be started
costs one experiment.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from schemas.executor.attempts import AttemptOutcome, FailureKind
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.orchestrator.views import ExperimentView
from schemas.task.task_file import TaskFile
from services.orchestrator.app import create_service
from services.orchestrator.settings import OrchestratorSettings
from shared.service import Service
from tests.support.worlds.orchestrator import World, task_file

GONE, HERE = "llamacpp", "simulated"


@pytest.fixture
async def service(nats_url: str, postgres_dsn: str, world: World) -> AsyncIterator[Service]:
    settings = OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn)
    async with create_service(settings).running() as running:
        yield running


def two_engines(name: str, **optimization: Any) -> TaskFile:
    engines = [
        {"base_runtime": HERE, "parameters": {"slots": [1, 2, 3]}},
        {"base_runtime": GONE, "parameters": {"threads": [1, 2, 3]}},
    ]
    return task_file(name, engines=engines, optimization=optimization)


def states_of(experiments: Iterable[ExperimentView]) -> Counter[tuple[str, ExperimentState]]:
    return Counter((each.engine.engine, each.state) for each in experiments)


def break_second(world: World) -> None:
    """The second experiment's engine has no image; all others run."""
    world.outcomes = [AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED]
    world.kinds = [FailureKind.IMAGE_MISSING]


async def test_grid_goes_on_without_the_engine(world: World, service: Service) -> None:
    break_second(world)
    task_id = await world.submit(two_engines("grid"))

    view = await world.until(task_id, TaskState.COMPLETED)

    experiments = await world.experiments(task_id)
    assert states_of(experiments) == {
        (HERE, ExperimentState.SUCCEEDED): 3,
        (GONE, ExperimentState.FAILED): 1,
        (GONE, ExperimentState.CANCELLED): 2,
    }
    note = "llama.cpp is left out after experiment 2: as scripted"
    assert note in view.notes
    assert {e.reason for e in experiments if e.state is ExperimentState.CANCELLED} == {note}
    assert len(world.starts) == 4
    best = max(experiments, key=lambda each: each.parameters.get("slots", 0))
    assert view.best_experiment_id == best.experiment_id


async def test_search_goes_on_without_the_engine(world: World, service: Service) -> None:
    break_second(world)
    task_id = await world.submit(two_engines("search", strategy="random", seed=3))

    await world.until(task_id, TaskState.COMPLETED)

    assert states_of(await world.experiments(task_id)) == {
        (HERE, ExperimentState.SUCCEEDED): 3,
        (GONE, ExperimentState.FAILED): 1,
    }


async def test_task_fails_where_no_engine_is_left(world: World, service: Service) -> None:
    world.outcomes = [AttemptOutcome.FAILED] * 2
    world.kinds = [FailureKind.IMAGE_MISSING] * 2
    task_id = await world.submit(two_engines("none"))

    view = await world.until(task_id, TaskState.FAILED)

    assert len(world.starts) == 2
    assert sum("is left out after" in note for note in view.notes) == 2
