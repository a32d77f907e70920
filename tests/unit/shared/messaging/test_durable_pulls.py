"""What a pull does while its consumer has no leader. The subscription is a fake: it refuses."""

import asyncio
from typing import Any, cast

import nats.errors
import pytest
from nats.aio.msg import Msg
from nats.js.errors import ServiceUnavailableError

from shared.messaging.bus import Bus
from shared.messaging.durable_pulls import DurablePull


class Refusing:
    """Refuses at once, as a server does while a consumer has no leader."""

    def __init__(self) -> None:
        self.calls = 0

    async def fetch(self, _: int, __: float | None) -> list[Msg]:
        self.calls += 1
        raise ServiceUnavailableError


async def test_refused_pull_is_not_repeated_at_once() -> None:
    """Repeated at once it was 2,500 requests a second for each consumer, until there was one."""
    refusing = Refusing()
    pull = DurablePull(Bus("test", "nats://127.0.0.1:1"), "durable", cast(Any, refusing))

    async def fetch_on() -> None:
        while True:
            with pytest.raises(nats.errors.TimeoutError):
                await pull.fetch(1, 1.0)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(fetch_on(), 0.5)

    assert 1 < refusing.calls < 6
