"""The service's world."""

from collections.abc import AsyncIterator

import nats
import pytest

from services.results.migrations import MIGRATIONS
from shared.postgres.database import Database
from shared.testing import PostgresServer
from tests.support.kept_schema import KeptSchema
from tests.support.worlds.results import World
from tests.support.worlds.sample_store import Store


@pytest.fixture(scope="session")
def kept_schema(postgres_server: PostgresServer) -> KeptSchema:
    return KeptSchema(postgres_server, "results", MIGRATIONS)


@pytest.fixture
async def world(nats_url: str, postgres_dsn: str) -> AsyncIterator[World]:
    client = await nats.connect(nats_url)
    yield World(nats_url, postgres_dsn, client)
    await client.close()


@pytest.fixture
async def store(postgres_dsn: str) -> AsyncIterator[Store]:
    database = Database(postgres_dsn, "results", MIGRATIONS)
    await database.open()
    yield Store(database)
    await database.close()
