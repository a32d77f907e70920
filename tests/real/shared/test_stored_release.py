"""Databases that earlier releases left with work half done: this one migrates and reads them."""

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.orchestrator.views import ExperimentList, ListExperiments, ListTasks, TaskList
from schemas.scheduler.views import ListReservations, ReservationList
from services.orchestrator.app import create_service as create_orchestrator
from services.orchestrator.settings import OrchestratorSettings
from services.scheduler.app import create_service as create_scheduler
from services.scheduler.settings import SchedulerSettings
from shared.local_platform.platform import POSTGRES_SERVICES
from shared.postgres.database import Database
from shared.postgres.pending_migrations import migrations_of
from shared.postgres.roles import role_of
from shared.testing import PostgresServer, database_of
from tests.support.bus import connected_bus
from tests.support.stored_release import RECORDED

RELEASES = sorted(RECORDED.glob("release-*.sql.gz"))


@pytest.fixture(params=RELEASES, ids=[path.name.split(".sql")[0] for path in RELEASES])
def statements(request: pytest.FixtureRequest) -> str:
    path: Path = request.param
    return gzip.decompress(path.read_bytes()).decode()


@pytest_asyncio.fixture
async def stored_dsn(postgres_server: PostgresServer, statements: str) -> AsyncIterator[str]:
    async with database_of(postgres_server) as dsn:
        connection = await asyncpg.connect(dsn)
        for schema in POSTGRES_SERVICES:
            role = role_of(schema)
            if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", role):
                await connection.execute(f"CREATE ROLE {role} NOLOGIN")
        await connection.execute(statements)
        await connection.close()
        yield dsn


async def test_every_schema_of_a_release_is_migrated(stored_dsn: str) -> None:
    for schema in sorted(POSTGRES_SERVICES):
        texts = migrations_of(schema)
        database = Database(stored_dsn, schema, texts)
        await database.open()
        versions = await database.pool.fetchval("SELECT max(version) FROM migration")
        await database.close()

        assert versions == len(texts)


async def test_half_done_work_of_a_release_is_read(nats_url: str, stored_dsn: str) -> None:
    orchestrator = create_orchestrator(
        OrchestratorSettings(nats_url=nats_url, postgres_dsn=stored_dsn)
    )
    scheduler = create_scheduler(SchedulerSettings(nats_url=nats_url, postgres_dsn=stored_dsn))
    async with (
        connected_bus(nats_url, "user") as bus,
        scheduler.running(),
        orchestrator.running(),
    ):
        tasks = await bus.query(ListTasks(), TaskList)
        experiments = await bus.query(ListExperiments(), ExperimentList)
        reservations = await bus.query(ListReservations(), ReservationList)

    [task] = tasks.tasks
    assert (task.task_name, task.state) == ("half-done", TaskState.RUNNING)
    states = [experiment.state for experiment in experiments.experiments]
    assert len(states) == 8
    assert states.count(ExperimentState.SUCCEEDED) >= 2
    # Their leases and waits have ended since.
    holders = {view.holder for view in reservations.reservations}
    assert {"notebook", "training"} <= holders
