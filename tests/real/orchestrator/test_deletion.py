"""Finished tasks and experiments, deleted or archived; over a real nats-server and Postgres."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import msgspec
import pytest

from schemas.base import Command, Event
from schemas.errors import Accepted, ErrorCode, Refused
from schemas.orchestrator.deletion import (
    DeleteExperiment,
    DeleteTask,
    ExperimentDeleted,
    TaskDeleted,
)
from schemas.orchestrator.experiments import TaskState
from schemas.orchestrator.views import (
    ExperimentList,
    GetExperiment,
    GetTask,
    ListExperiments,
    ListTasks,
    TaskList,
    TaskView,
)
from services.orchestrator.app import create_service
from services.orchestrator.handlers import tasks as handlers
from services.orchestrator.settings import OrchestratorSettings
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.ids import new_id
from shared.service import Service
from tests.support.worlds.orchestrator import World, task_file


@pytest.fixture
async def service(nats_url: str, postgres_dsn: str, world: World) -> AsyncIterator[Service]:
    settings = OrchestratorSettings(
        nats_url=nats_url, postgres_dsn=postgres_dsn, archive_after_days=30
    )
    async with create_service(settings).running() as running:
        yield running


async def sent(world: World, command: Command) -> Accepted:
    reply = await world.bus.request(command)
    assert isinstance(reply, Accepted), reply
    return reply


async def refused(world: World, command: Command) -> Refused:
    reply = await world.bus.request(command)
    assert isinstance(reply, Refused), reply
    return reply


async def staged(service: Service, kind: type[Event]) -> list[Event]:
    assert service.database is not None
    rows = await service.database.pool.fetch("SELECT body FROM outbox ORDER BY id")
    tag = kind.__struct_config__.tag
    bodies = [row["body"] for row in rows if msgspec.msgpack.decode(row["body"])["type"] == tag]
    return [msgspec.msgpack.decode(body, type=kind) for body in bodies]


async def rows(service: Service) -> list[int]:
    assert service.database is not None
    return [
        await service.database.pool.fetchval(f"SELECT count(*) FROM {table}")
        for table in ("task", "experiment", "attempt")
    ]


async def listed(world: World, *, archived: bool) -> list[tuple[UUID, bool]]:
    answer = await world.bus.query(ListTasks(archived=archived), TaskList)
    return [(task.task_id, task.archived) for task in answer.tasks]


async def test_deleted_task_goes_with_its_experiments(world: World, service: Service) -> None:
    task_id, other_id = await world.submit(), await world.submit(task_file("other"))
    await world.until(task_id, TaskState.COMPLETED)
    await world.until(other_id, TaskState.COMPLETED)
    before = await rows(service)
    command = DeleteTask(command_id=new_id(), task_id=task_id)

    first = await sent(world, command)
    again = await sent(world, command)

    assert first == again
    assert await rows(service) == [count // 2 for count in before]
    [event] = await staged(service, TaskDeleted)
    assert isinstance(event, TaskDeleted)
    assert (event.task_id, event.experiments, event.revision) == (task_id, 2, first.revision)
    with pytest.raises(RefusedError, match="there is no task"):
        await world.bus.query(GetTask(task_id=task_id), TaskView)
    late = await refused(world, DeleteTask(command_id=new_id(), task_id=task_id))
    assert late.code is ErrorCode.NOT_FOUND
    assert await listed(world, archived=True) == [(other_id, False)]


async def test_stale_revision_is_not_deleted(world: World, service: Service) -> None:
    task_id = await world.submit()
    read = await world.until(task_id, TaskState.COMPLETED)
    experiment = (await world.experiments(task_id))[0]
    before = await rows(service)

    for command in (
        DeleteTask(command_id=new_id(), task_id=task_id, expected_revision=read.revision - 1),
        DeleteExperiment(
            command_id=new_id(),
            experiment_id=experiment.experiment_id,
            expected_revision=experiment.revision + 1000,
        ),
    ):
        reply = await refused(world, command)

        assert (reply.code, reply.path) == (ErrorCode.CHANGED_SINCE, "$.expected_revision")
    assert await rows(service) == before


async def test_running_task_is_not_deleted(world: World, service: Service) -> None:
    world.auto_run = False
    task_id = await world.submit()
    experiment = (await world.experiments(task_id))[0]

    for command in (
        DeleteTask(command_id=new_id(), task_id=task_id),
        DeleteExperiment(command_id=new_id(), experiment_id=experiment.experiment_id),
    ):
        reply = await refused(world, command)

        assert reply.code is ErrorCode.CONFLICT
        assert f"`gpusteward cancel {task_id}` ends it" in reply.message
    assert await rows(service) != [0, 0, 0]


async def test_next_best_follows_a_deleted_best(world: World, service: Service) -> None:
    task_id = await world.submit()
    best_id = (await world.until(task_id, TaskState.COMPLETED)).best_experiment_id
    experiments = await world.experiments(task_id)
    assert best_id == experiments[1].experiment_id

    await sent(world, DeleteExperiment(command_id=new_id(), experiment_id=best_id))

    task = await world.task(task_id)
    assert task.best_experiment_id == experiments[0].experiment_id
    assert (task.state, task.experiments_total) == (TaskState.COMPLETED, 1)
    [event] = await staged(service, ExperimentDeleted)
    assert isinstance(event, ExperimentDeleted)
    assert (event.experiment_id, event.task_id) == (best_id, task_id)
    with pytest.raises(RefusedError, match="there is no experiment"):
        await world.bus.query(GetExperiment(experiment_id=best_id), ExperimentList)


async def test_archived_task_is_listed_only_if_asked_for(
    world: World, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = await world.submit()
    await world.until(task_id, TaskState.COMPLETED)
    every, of_task = ListExperiments(), ListExperiments(task_id=task_id)

    now = await listed(world, archived=False)
    later = utcnow() + timedelta(days=31)
    monkeypatch.setattr(handlers, "utcnow", lambda: later)

    assert now == [(task_id, False)]
    assert await listed(world, archived=False) == []
    assert await listed(world, archived=True) == [(task_id, True)]
    assert (await world.task(task_id)).archived
    assert (await world.bus.query(every, ExperimentList)).experiments == ()
    assert len((await world.bus.query(of_task, ExperimentList)).experiments) == 2
