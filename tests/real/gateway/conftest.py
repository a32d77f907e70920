"""What the tests of the gateway share."""

from collections.abc import AsyncIterator

import pytest

from services.gateway.migrations import MIGRATIONS
from shared.testing import PostgresServer
from tests.support.kept_schema import KeptSchema


@pytest.fixture(scope="session")
def kept_schema(postgres_server: PostgresServer) -> KeptSchema:
    return KeptSchema(postgres_server, "gateway", MIGRATIONS)


@pytest.fixture
async def postgres_dsn(kept_schema: KeptSchema) -> AsyncIterator[str]:
    """A database as it is after the service's first start."""
    async with kept_schema.database() as dsn:
        yield dsn
