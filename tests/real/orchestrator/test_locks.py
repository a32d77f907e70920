"""What an event is about is locked by one statement, and read as the event before it left it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final

import pytest
from msgspec.structs import replace

from schemas.orchestrator.experiments import ExperimentState
from services.orchestrator.domain.records import Attempt, Experiment, Task
from services.orchestrator.ledger import attempt_rows, task_rows
from services.orchestrator.ledger.attempt_rows import Subject
from services.orchestrator.ledger.decision_writer import write_rows
from services.orchestrator.ledger.migrations import MIGRATIONS
from shared.postgres.database import Connection, Database
from shared.testing import eventually
from tests.support.kept_schema import opened
from tests.support.worlds.orchestrator_records import (
    ATTEMPT_ID,
    RESERVATION_ID,
    TASK_ID,
    make_attempt,
    make_experiment,
    make_task,
)

IS_WAITING: Final = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"
Lock = Callable[[Connection], Awaitable[Subject | None]]
LOCKS: Final = [
    pytest.param(partial(attempt_rows.lock_by_attempt, attempt_id=ATTEMPT_ID), id="attempt"),
    pytest.param(
        partial(attempt_rows.lock_by_reservation, reservation_id=RESERVATION_ID), id="reservation"
    ),
]


@pytest.fixture
async def database(postgres_dsn: str) -> AsyncIterator[Database]:
    async with opened(Database(postgres_dsn, "orchestrator", MIGRATIONS)) as database:
        yield database


async def store(database: Database) -> tuple[Task, Experiment, Attempt]:
    task = make_task()
    experiment, attempt = make_experiment(ExperimentState.WAITING), make_attempt()
    async with database.transaction() as connection:
        await task_rows.insert(connection, task)
        await write_rows(connection, experiments=[experiment], attempts=[attempt])
    return task, experiment, attempt


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("is_task_changed", [True, False])
async def test_second_event_reads_what_the_first_wrote(
    database: Database, lock: Lock, is_task_changed: bool
) -> None:
    task, experiment, attempt = await store(database)
    changed_task = replace(task, revision=9) if is_task_changed else task
    running = replace(experiment, state=ExperimentState.RUNNING, revision=2)
    granted = replace(attempt, reservation_revision=5)

    async def second_event() -> Subject | None:
        async with database.transaction() as connection:
            return await lock(connection)

    async with asyncio.TaskGroup() as group, database.transaction() as first:
        await task_rows.lock(first, TASK_ID)
        second = group.create_task(second_event())
        async with database.statements() as observer:
            await eventually(lambda: observer.fetchval(IS_WAITING))
        # Were anything but the task locked by now, each would wait for the other.
        await write_rows(
            first,
            tasks=[changed_task] if is_task_changed else [],
            experiments=[running],
            attempts=[granted],
        )

    assert second.result() == (changed_task, running, granted)


@pytest.mark.parametrize("lock", LOCKS)
async def test_event_of_another_installation_locks_nothing(database: Database, lock: Lock) -> None:
    async with database.transaction() as connection:
        assert await lock(connection) is None
