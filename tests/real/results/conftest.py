"""The service's world."""

from collections.abc import AsyncIterator

import nats
import pytest

from tests.support.worlds.results import World


@pytest.fixture
async def world(nats_url: str, postgres_dsn: str) -> AsyncIterator[World]:
    client = await nats.connect(nats_url)
    yield World(nats_url, postgres_dsn, client)
    await client.close()
