"""Follows the scheduler's reservations of this node, for a source that makes its load from them."""

import asyncio
from dataclasses import dataclass
from typing import Final

from schemas.scheduler import (
    ReservationCancelled,
    ReservationEnded,
    ReservationExpired,
    ReservationGranted,
    ReservationLost,
    ReservationPreempted,
    ReservationReleased,
    ReservationState,
)
from schemas.scheduler_views import ListReservations, ReservationList
from services.telemetry.domain.holdings import Holdings
from shared.bus import Bus
from shared.errors import RefusedError, UnavailableError

ENDS: Final[tuple[type[ReservationEnded], ...]] = (
    ReservationReleased,
    ReservationCancelled,
    ReservationExpired,
    ReservationPreempted,
    ReservationLost,
)
RETRY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class GrantFollower:
    """Hears events as they pass, and asks the scheduler now and then for what was missed."""

    bus: Bus
    node_id: str
    holdings: Holdings
    reconcile_seconds: float

    async def listen(self) -> None:
        """Subscribe; the connection is open."""
        await self.bus.listen(ReservationGranted, self.granted)
        for end in ENDS:
            await self.bus.listen(end, self.ended)

    async def granted(self, event: ReservationGranted) -> None:
        """Raise the load of this node's devices."""
        if event.node_id == self.node_id:
            self.holdings.grant(event.reservation_id, [device.uuid for device in event.devices])

    async def ended(self, event: ReservationEnded) -> None:
        """Drop it. An end without a node is that of a reservation never granted."""
        if event.node_id == self.node_id:
            self.holdings.end(event.reservation_id)

    async def reconcile(self) -> None:
        """Ask, until cancelled; a scheduler that does not answer is asked again soon."""
        while True:
            try:
                await self._ask()
            except (UnavailableError, RefusedError):
                await asyncio.sleep(RETRY_SECONDS)
            else:
                await asyncio.sleep(self.reconcile_seconds)

    async def _ask(self) -> None:
        asked_about = self.holdings.reservations
        answer = await self.bus.query(
            ListReservations(
                states=(
                    ReservationState.GRANTED,
                    ReservationState.ACTIVE,
                    ReservationState.RELEASING,
                ),
                node_id=self.node_id,
                limit=1000,
            ),
            ReservationList,
        )
        live = {
            view.reservation_id: [
                device.uuid for device in view.devices if device.node_id == self.node_id
            ]
            for view in answer.reservations
        }
        self.holdings.reconcile(live, asked_about)
