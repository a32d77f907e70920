"""Durable consumers that are gone, or whose pulls nobody answers any more, go on by themselves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

import nats
import pytest
from nats.aio.client import Client

from schemas.base import subject_for
from schemas.scheduler.reservations import ReservationReleased
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.bus import Bus
from shared.messaging.codec import encode
from shared.messaging.durable_pulls import DurablePull
from shared.messaging.routes import event_route
from shared.messaging.stream_names import EVENTS
from shared.service import Service
from shared.testing import eventually

DURABLE = "orchestrator_on_ended"


@dataclass
class Listener:
    """Remembers which events it got, while `client` publishes them."""

    client: Client
    heard: list[UUID] = field(default_factory=list)

    async def on_released(self, event: ReservationReleased) -> None:
        self.heard.append(event.reservation_id)

    async def tell(self) -> UUID:
        event = ReservationReleased(
            message_id=new_id(),
            occurred_at=utcnow(),
            revision=1,
            reservation_id=new_id(),
            namespace="default",
            holder="test",
        )
        await self.client.jetstream().publish(subject_for(event), encode(event))
        return event.reservation_id

    async def is_told(self) -> None:
        told = await self.tell()
        await eventually(lambda: told in self.heard, within_seconds=15, what="the event")


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[tuple[Listener, DurablePull]]:
    client = await nats.connect(url)
    listener = Listener(client)
    route = event_route(listener.on_released, ReservationReleased, durable=DURABLE)
    service = Service("orchestrator", bus=Bus("orchestrator", url), routes=[route])
    try:
        async with service.running():
            await listener.is_told()
            yield listener, service._pulls._pulls[DURABLE]  # noqa: SLF001  # what a fault is done to
    finally:
        await client.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.messaging.durable_pulls.CHECK_SECONDS", 0.1)
    monkeypatch.setattr("shared.messaging.durable_pulls.SILENT_SECONDS", 0.3)


@pytest.mark.usefixtures("quick")
async def test_deleted_consumer_is_made_again(nats_url: str) -> None:
    async with listening(nats_url) as (listener, _):
        await listener.client.jetstream().delete_consumer(EVENTS, DURABLE)

        await listener.is_told()


@pytest.mark.usefixtures("quick")
async def test_inbox_that_hears_nothing_is_renewed(nats_url: str) -> None:
    """As of pull consumers that were silent after a restart: nats-io/nats.py 504."""
    async with listening(nats_url) as (listener, pull):
        dead = pull.subscription
        await pull.bus.nats._send_unsubscribe(dead._sub._id)  # noqa: SLF001  # the server forgets it
        await pull.bus.nats.flush()

        await listener.is_told()

        assert pull.subscription is not dead


@pytest.mark.usefixtures("quick")
async def test_consumer_that_waits_is_left_alone(nats_url: str) -> None:
    async with listening(nats_url) as (listener, pull):
        subscription = pull.subscription
        for _ in range(3):
            await asyncio.sleep(0.4)  # longer than silence is, without anything to come
            await listener.is_told()

        assert pull.subscription is subscription
