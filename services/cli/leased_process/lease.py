"""A lease kept for as long as something runs under it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from schemas.scheduler.views import ReservationView
from shared.client.http import StewardClient
from shared.errors import RefusedError, StewardError, UnavailableError
from shared.lease import Lease
from shared.waiting import within

RETRY_SECONDS: Final = 0.5
ANSWER_TIMEOUT_SECONDS: Final = 5.0


class LeaseLost(StewardError):
    """The devices are not ours any more; what runs on them has to stop."""


@dataclass(slots=True)
class HeldLease:
    """A granted reservation, by our monotonic clock."""

    client: StewardClient
    reservation: ReservationView
    epoch: int
    now: Callable[[], float] = time.monotonic
    confirmed: Lease = field(init=False)

    def __post_init__(self) -> None:
        ttl_seconds = self.reservation.request.lease_ttl_seconds
        self.confirmed = Lease(ttl_seconds=ttl_seconds, confirmed_at=self.now())

    @property
    def seconds_left(self) -> float:
        """Return the time until the workload has to be stopped if no renewal is confirmed
        before.
        """
        return self.confirmed.stop_at - self.now()

    async def activate(self) -> None:
        """Confirm the lease before anything starts on the devices. Raises LeaseLost."""
        while not await self._renew(activate=True):
            if self.seconds_left <= 0:
                raise LeaseLost(self._loss_message())
            await asyncio.sleep(RETRY_SECONDS)

    async def renew_until_lost(self) -> None:
        """Renew every third of the lease, until cancelled. Raises LeaseLost."""
        while True:
            await asyncio.sleep(max(0.0, self.confirmed.renew_at - self.now()))
            while not await self._renew():
                if self.seconds_left <= 0:
                    raise LeaseLost(self._loss_message())
                await asyncio.sleep(RETRY_SECONDS)

    async def loss(self, *, asks: bool) -> LeaseLost | None:
        """Return why the lease was lost; None while it is ours.

        Asks the scheduler if `asks` is set or if its time is up.
        """
        if self.seconds_left > 0 and not asks:
            return None
        try:
            if await self._renew(within_seconds=ANSWER_TIMEOUT_SECONDS):
                return None
        except LeaseLost as error:
            return error
        return LeaseLost(self._loss_message()) if self.seconds_left <= 0 else None

    async def _renew(self, *, activate: bool = False, within_seconds: float | None = None) -> bool:
        """Renew the lease; return whether the scheduler confirmed. Its time counts from the
        sending.
        """
        asked_at = self.now()
        left_seconds = max(self.seconds_left, 0.0) if within_seconds is None else within_seconds
        try:
            async with within(left_seconds):
                answer = await self.client.renew_reservation(
                    self.reservation.reservation_id, self.epoch, activate=activate
                )
        except TimeoutError:
            return False
        except UnavailableError:
            return False
        except RefusedError as error:
            if error.as_refused().retryable:
                return False
            raise LeaseLost(f"the scheduler refused to renew it: {error}") from error
        ttl_seconds = answer.lease_ttl_seconds or self.confirmed.ttl_seconds
        self.confirmed = Lease(ttl_seconds=ttl_seconds, confirmed_at=asked_at)
        return True

    def _loss_message(self) -> str:
        trusted_seconds = self.confirmed.ttl_seconds - self.confirmed.stop_budget_seconds
        return f"no renewal was confirmed for {trusted_seconds:g} s"
