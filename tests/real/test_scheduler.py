"""The scheduler over nats-server and Postgres: grants, waiting, leases, quarantine."""

from collections.abc import AsyncIterator

import pytest

from schemas.scheduler import (
    ReservationQueued,
    ReservationReleased,
)
from tests.scheduler_world import World, accepted, scheduler, world


@pytest.fixture
async def steward(nats_url: str, postgres_dsn: str) -> AsyncIterator[World]:
    async with scheduler(nats_url, postgres_dsn), world(nats_url) as around:
        yield around


async def test_a_request_is_queued_granted_activated_and_released_with_events(
    steward: World,
) -> None:
    node = await steward.add_node("alpha", 2)

    reservation_id = await steward.request(holder="test")
    granted = await steward.granted(reservation_id)
    renewed = accepted(await steward.renew(granted, activate=True))
    released = accepted(await steward.release(granted))

    assert granted.node_id == "alpha"
    assert granted.devices[0].uuid in {gpu.uuid for gpu in node.gpus}
    assert granted.devices[0].simulated
    assert renewed.lease_ttl_seconds == 30.0
    assert renewed.epoch == granted.epoch
    assert released.revision == 4
    queued = await steward.event(ReservationQueued, reservation_id)
    ended = await steward.event(ReservationReleased, reservation_id)
    assert (queued.revision, queued.position) == (1, 1)
    assert (ended.revision, ended.devices) == (4, granted.devices)
