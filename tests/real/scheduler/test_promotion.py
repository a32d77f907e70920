"""The primary dies under two schedulers: one of them goes on deciding at the promoted standby."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schemas.errors import Accepted, Refused
from schemas.scheduler.reservations import RequestReservation, ReservationGranted
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.testing import short_directory
from tests.support.postgres.pair import postgres_pair
from tests.support.worlds.scheduler import World, accepted, scheduler, world

FIRST_GRANT_SECONDS = 10.0


@pytest.fixture
async def directory() -> AsyncIterator[Path]:
    with short_directory() as path:
        yield path


async def ask_until_answered(around: World, command: RequestReservation) -> Accepted:
    """Send one command again and again, as a client whose question was lost."""
    while True:
        try:
            reply = await around.bus.request(command, timeout_seconds=2.0)
        except UnavailableError:
            await asyncio.sleep(0.05)
            continue
        if isinstance(reply, Refused) and reply.retryable:
            await asyncio.sleep(0.05)
            continue
        return accepted(reply)


async def test_grants_go_on_at_the_promoted_standby(nats_url: str, directory: Path) -> None:
    async with (
        postgres_pair(directory) as pair,
        scheduler(nats_url, pair.dsn),
        scheduler(nats_url, pair.dsn),
        world(nats_url) as around,
    ):
        await around.add_node("alpha", 8, interval_seconds=0.2)
        before = [await around.granted(await around.request()) for _ in range(3)]
        in_doubt = [
            RequestReservation(command_id=new_id(), reservation_id=new_id()) for _ in range(4)
        ]
        asking = [asyncio.create_task(ask_until_answered(around, c)) for c in in_doubt]

        await pair.primary.crash()
        await pair.standby.promote()
        promoted_at = time.monotonic()
        await asyncio.gather(*asking)
        after = [await around.granted(command.reservation_id) for command in in_doubt]

        first_seconds = min(around.received_at(grant) for grant in after) - promoted_at
        assert first_seconds < FIRST_GRANT_SECONDS
        assert max(grant.epoch for grant in before) < min(grant.epoch for grant in after)
        assert len({grant.epoch for grant in after}) == len(after)
        devices = [device.uuid for grant in (*before, *after) for device in grant.devices]
        assert len(set(devices)) == len(devices) == 7
        for grant in before:  # as they were acknowledged
            accepted(await around.renew(grant, activate=True))
        assert len(around.seen(ReservationGranted)) == 7
