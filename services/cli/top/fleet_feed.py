"""Keeps the state of the live view up to date, also across a platform that was away."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from schemas.gateway.views import GpuMetrics
from schemas.scheduler.reservations import LIVE_STATES
from services.cli.top.fleet_rows import FleetState
from shared.client.http import StewardClient
from shared.errors import StewardError
from shared.waiting import cancel_and_wait, wait_for

LEDGER_SECONDS: Final = 2.0  # leases are renewed without an event
RECONNECT_SECONDS: Final = 1.0
READINGS_PER_SECOND: Final = 2.0


@dataclass(slots=True)
class FleetFeed:
    """`lost` says what is wrong while the platform does not answer; empty while it does."""

    client: StewardClient
    state: FleetState
    lost: str = ""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def read_ledger(self) -> None:
        """Raises StewardError."""
        gpus = await self.client.gpus(node_id=self.state.node_id)
        reservations = await self.client.reservations(
            states=sorted(LIVE_STATES), node_id=self.state.node_id
        )
        self.state.apply_ledger(gpus.gpus, reservations, asyncio.get_running_loop().time())

    async def follow(self) -> None:
        """Follow the fleet until cancelled."""
        tasks = [
            asyncio.create_task(coroutine)
            for coroutine in (
                self._follow_ledger(),
                self._repeat(self._read_metrics),
                self._repeat(self._read_events),
            )
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancel_and_wait(*tasks)

    async def _follow_ledger(self) -> None:
        while True:
            await wait_for(self._changed, LEDGER_SECONDS)
            self._changed.clear()
            try:
                await self.read_ledger()
                self.lost = ""
            except StewardError as error:
                self.lost = str(error)
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _repeat(self, read: Callable[[], Awaitable[None]]) -> None:
        while True:
            with suppress(StewardError):
                await read()
            # Reading the ledger then shows whether the platform answers at all.
            self._changed.set()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _read_metrics(self) -> None:
        stream = self.client.metrics(node_id=self.state.node_id, rate=READINGS_PER_SECOND)
        async with stream as frames:
            async for frame in frames:
                if isinstance(frame, GpuMetrics):
                    self.state.apply_readings(frame, asyncio.get_running_loop().time())

    async def _read_events(self) -> None:
        async with self.client.events() as events:
            self._changed.set()
            async for event in events:
                if event.type.startswith("scheduler."):
                    self._changed.set()
