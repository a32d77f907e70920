"""What the tests of the orchestrator share."""

from collections.abc import AsyncIterator

import pytest

from services.orchestrator.ledger.migrations import MIGRATIONS
from shared.testing import PostgresServer
from tests.support.kept_schema import KeptSchema
from tests.support.worlds.orchestrator import World, scripted_world


@pytest.fixture(scope="session")
def kept_schema(postgres_server: PostgresServer) -> KeptSchema:
    return KeptSchema(postgres_server, "orchestrator", MIGRATIONS)


@pytest.fixture
async def world(nats_url: str) -> AsyncIterator[World]:
    async with scripted_world(nats_url) as running:
        yield running
