"""Tracks the scheduler's reservations of this node.

They give a simulated fleet its load, metrics their labels, and a power limit its end.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from schemas.errors import ErrorCode
from schemas.gpus.device_grant import DeviceGrant
from schemas.scheduler.reservations import (
    RESERVATION_ENDS,
    ReservationEnded,
    ReservationGranted,
    ReservationState,
)
from schemas.scheduler.views import (
    GetReservation,
    ListReservations,
    ReservationList,
    ReservationView,
)
from services.telemetry.domain.holdings import Holding, Holdings, Tenant
from shared.errors import RefusedError, UnavailableError
from shared.messaging.bus import Bus

HOLDING: Final = (
    ReservationState.GRANTED,
    ReservationState.ACTIVE,
    ReservationState.RELEASING,
)
RETRY_SECONDS: Final = 2.0
ANSWER_TIMEOUT_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class ReservationTracker:
    """Receives the scheduler's events, and queries it periodically for those that were missed.

    `on_end` is called for every reservation that ends here, by event or by query.
    """

    bus: Bus
    node_id: str
    holdings: Holdings
    reconcile_seconds: float
    on_end: list[Callable[[UUID], None]] = field(default_factory=list)

    async def subscribe(self) -> None:
        """Subscribe, once the bus is connected."""
        await self.bus.listen(ReservationGranted, self.record_grant)
        for end in RESERVATION_ENDS:
            await self.bus.listen(end, self.record_end)

    async def record_grant(self, event: ReservationGranted) -> None:
        if self.node_id in {event.node_id, *event.node_ids}:
            tenant = Tenant.of(event.namespace, event.holder)
            self.holdings.grant(event.reservation_id, self._here(event.devices), tenant)

    async def record_end(self, event: ReservationEnded) -> None:
        """An end without a node is that of a reservation that was never granted."""
        if self.node_id == event.node_id or self._here(event.devices):
            self.end(event.reservation_id)

    def end(self, reservation_id: UUID) -> None:
        self.holdings.end(reservation_id)
        for callback in self.on_end:
            callback(reservation_id)

    async def require_holder(self, reservation_id: UUID, device_uuid: str) -> None:
        """Query the scheduler whether this reservation holds the device. Raises RefusedError."""
        query = GetReservation(reservation_id=reservation_id)
        try:
            view = await self.bus.query(
                query, ReservationView, timeout_seconds=ANSWER_TIMEOUT_SECONDS
            )
        except UnavailableError as error:
            raise RefusedError(
                ErrorCode.UNAVAILABLE, f"the scheduler does not say who holds {device_uuid}"
            ) from error
        devices = self._here(view.devices)
        if view.state not in HOLDING:
            actual = f"one that is {view.state}"
        elif device_uuid not in devices:
            actual = f"one that holds {', '.join(sorted(devices)) or 'nothing'} of {self.node_id}"
        else:
            self.holdings.grant(reservation_id, devices, Tenant.of(view.namespace, view.holder))
            return
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"expected a reservation that holds {device_uuid}, found {actual}",
            path="$.reservation_id",
        )

    async def reconcile(self) -> None:
        """Query the scheduler, until cancelled; soon again if it does not answer."""
        while True:
            try:
                await self._query_live()
            except (UnavailableError, RefusedError):
                await asyncio.sleep(RETRY_SECONDS)
            else:
                await asyncio.sleep(self.reconcile_seconds)

    async def _query_live(self) -> None:
        queried = self.holdings.reservations
        query = ListReservations(states=HOLDING, node_id=self.node_id, limit=1000)
        answer = await self.bus.query(query, ReservationList)
        live = {
            view.reservation_id: Holding(
                devices=self._here(view.devices), tenant=Tenant.of(view.namespace, view.holder)
            )
            for view in answer.reservations
        }
        for reservation_id in queried - live.keys():
            self.end(reservation_id)
        self.holdings.reconcile(live, queried)

    def _here(self, devices: tuple[DeviceGrant, ...]) -> frozenset[str]:
        return frozenset(device.uuid for device in devices if device.node_id == self.node_id)
