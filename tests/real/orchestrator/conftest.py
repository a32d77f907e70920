"""What the tests of the orchestrator share."""

from collections.abc import AsyncIterator

import pytest

from tests.support.worlds.orchestrator import World, scripted_world


@pytest.fixture
async def world(nats_url: str) -> AsyncIterator[World]:
    async with scripted_world(nats_url) as running:
        yield running
