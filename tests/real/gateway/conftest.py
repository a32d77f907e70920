"""What the tests of the gateway share."""

import pytest

from services.gateway.ledger.migrations import MIGRATIONS
from shared.testing import PostgresServer
from tests.support.kept_schema import KeptSchema


@pytest.fixture(scope="session")
def kept_schema(postgres_server: PostgresServer) -> KeptSchema:
    return KeptSchema(postgres_server, "gateway", MIGRATIONS)
