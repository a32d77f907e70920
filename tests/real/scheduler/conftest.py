"""A scheduler on a real bus and database, and the world around it."""

from collections.abc import AsyncIterator

import pytest

from tests.support.worlds.scheduler import World, scheduler, world


@pytest.fixture
async def steward(nats_url: str, postgres_dsn: str) -> AsyncIterator[World]:
    async with scheduler(nats_url, postgres_dsn), world(nats_url) as around:
        yield around
