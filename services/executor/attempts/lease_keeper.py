"""Holding the lease of one attempt: renewed until it is refused or cannot be trusted any more."""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from schemas.base import node_speaker
from schemas.errors import Accepted, Refused
from schemas.executor.attempts import StartExperiment
from schemas.scheduler.reservations import RenewReservation
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.lease import Lease
from shared.logging import log
from shared.messaging.bus import Bus


@dataclass(slots=True, kw_only=True)
class LeaseKeeper:
    """`confirmed` is set once the scheduler has answered; nothing may start before. `on_confirmed`
    gets every renewed lease. An attempt at a server that runs already has no lease to lose.

    Of several ranks only the coordinator says that the attempt becomes active.
    """

    command: StartExperiment
    bus: Bus
    on_confirmed: Callable[[Lease], None]
    confirmed: asyncio.Event = field(default_factory=asyncio.Event)
    lease: Lease = field(init=False)

    def __post_init__(self) -> None:
        needs_lease = self.command.engine.endpoint is None
        ttl_seconds = self.command.lease_ttl_seconds if needs_lease else math.inf
        self.lease = Lease(ttl_seconds=ttl_seconds, confirmed_at=time.monotonic())

    async def until_lost(self) -> str:
        """Renew as long as that works; why it does not any more."""
        if self.command.engine.endpoint is not None:
            self.confirmed.set()
            await asyncio.Event().wait()
        while True:
            now = time.monotonic()
            if now >= self.lease.stop_at:
                return f"the lease was not renewed for {now - self.lease.confirmed_at:.1f} s"
            if self.confirmed.is_set() and now < self.lease.renew_at:
                await asyncio.sleep(self.lease.renew_at - now)
                continue
            is_first = self.command.gang is None and not self.confirmed.is_set()
            reply = await self._renew(activate=is_first)
            if isinstance(reply, Accepted):
                self.lease = Lease(
                    ttl_seconds=reply.lease_ttl_seconds or self.lease.ttl_seconds, confirmed_at=now
                )
                self.on_confirmed(self.lease)
                self.confirmed.set()
            elif reply is not None and not reply.retryable:
                return f"the scheduler refused the lease: {reply.message}"
            else:
                left_seconds = max(0.0, self.lease.stop_at - time.monotonic())
                await asyncio.sleep(min(self.lease.retry_seconds, left_seconds))

    async def _renew(self, *, activate: bool) -> Accepted | Refused | None:
        """Send one renewal; return None if no answer came in time."""
        renewal = RenewReservation(
            command_id=new_id(),
            reservation_id=self.command.reservation_id,
            epoch=self.command.epoch,
            activate=activate,
            speaker=node_speaker(self.command.executor_id),
        )
        try:
            return await self.bus.request(
                renewal, timeout_seconds=self.lease.request_timeout_seconds(time.monotonic())
            )
        except UnavailableError as error:
            log.warning(
                "lease_unconfirmed", attempt_id=str(self.command.attempt_id), error=str(error)
            )
            return None
