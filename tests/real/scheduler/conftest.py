"""A scheduler on a real bus and database, and the world around it."""

from collections.abc import AsyncIterator

import pytest

from services.scheduler.ledger.migrations import MIGRATIONS
from shared.postgres.database import Database
from shared.testing import PostgresServer
from tests.support.idle_clock import idle_time
from tests.support.kept_schema import KeptSchema, opened
from tests.support.worlds.scheduler import World, scheduler, world


@pytest.fixture(scope="session")
def kept_schema(postgres_server: PostgresServer) -> KeptSchema:
    return KeptSchema(postgres_server, "scheduler", MIGRATIONS)


@pytest.fixture
async def database(postgres_dsn: str) -> AsyncIterator[Database]:
    async with opened(Database(postgres_dsn, "scheduler", MIGRATIONS)) as database:
        yield database


@pytest.fixture
async def steward(nats_url: str, postgres_dsn: str) -> AsyncIterator[World]:
    async with scheduler(nats_url, postgres_dsn), world(nats_url) as around:
        yield around


@pytest.fixture
async def unhurried(nats_url: str, postgres_dsn: str) -> AsyncIterator[World]:
    """Measured by the idle clock, and of a leader whose term is so long that renewing it wakes it
    too late for these tests.
    """
    with idle_time(timers=False) as clock:
        async with (
            scheduler(nats_url, postgres_dsn, leader_ttl_seconds=90.0),
            world(nats_url, clock) as around,
        ):
            yield around
