"""Saying that what runs under a reservation has to give way, before it is stopped."""

import asyncio
from contextlib import suppress
from typing import Final
from uuid import UUID

from schemas.scheduler.views import ReservationView
from services.cli.display.slow_reader import say
from shared.client.http import StewardClient
from shared.errors import StewardError

RECONNECT_SECONDS: Final = 2.0


async def say_when_asked_back(client: StewardClient, reservation_id: UUID) -> None:
    """Say it once on standard error; return then. While the gateway is away nothing is known."""
    while True:
        view = await _wait_for_notice(client, reservation_id)
        if view is not None:
            await say(f"gpusteward: the reservation is {view.reason}", err=True)
            return
        await asyncio.sleep(RECONNECT_SECONDS)


async def _wait_for_notice(client: StewardClient, reservation_id: UUID) -> ReservationView | None:
    """The reservation once it has to give way; None if the stream of its events ended before.

    It is read after the stream began, and after each event, so that no notice falls between.
    """
    with suppress(StewardError):
        async with client.events(reservation_id=reservation_id) as events:
            view = await client.reservation(reservation_id)
            while view.preempting_until is None:
                if await anext(events, None) is None:
                    return None
                view = await client.reservation(reservation_id)
            return view
    return None
