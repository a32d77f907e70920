"""Renews granted leases until an executor has taken them over."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

from schemas.errors import Refused
from schemas.scheduler.reservations import RenewReservation
from services.orchestrator.domain.records import Attempt
from services.orchestrator.ledger import attempt_rows
from shared.clock import utcnow
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.lease import renew_interval_seconds
from shared.logging import log
from shared.messaging.bus import Bus
from shared.postgres.database import Database
from shared.waiting import wait_for

IDLE_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 0.5
REQUEST_TIMEOUT_SECONDS: Final = 2.0


@dataclass(slots=True)
class Leases:
    """`wake` is set when there may be a lease to renew.

    An executor without a report for `executor_ttl` will not take it over: the lease runs out, so
    that the node confirms that nothing runs and the experiment can be repeated elsewhere.
    """

    database: Database
    bus: Bus
    wake: asyncio.Event
    executor_ttl: timedelta
    _next_at: dict[UUID, float] = field(default_factory=dict)
    _lost: set[UUID] = field(default_factory=set)

    async def run(self) -> None:
        """Renew until cancelled. Raises UnavailableError when Postgres is down."""
        while True:
            self.wake.clear()
            pause = await self.renew_due()
            await wait_for(self.wake, pause)

    async def renew_due(self) -> float:
        """Renew what is due; the seconds until something is due again."""
        async with self.database.transaction() as connection:
            granted = await attempt_rows.to_renew(connection, utcnow() - self.executor_ttl)
        ids = {attempt.reservation_id for attempt in granted}
        self._next_at = {key: at for key, at in self._next_at.items() if key in ids}
        self._lost &= ids
        now = asyncio.get_running_loop().time()
        due = [
            attempt
            for attempt in granted
            if attempt.reservation_id not in self._lost
            and self._next_at.get(attempt.reservation_id, now) <= now
        ]
        await asyncio.gather(*(self._renew(attempt) for attempt in due))
        current = asyncio.get_running_loop().time()
        return max(0.0, min([at - current for at in self._next_at.values()], default=IDLE_SECONDS))

    async def _renew(self, attempt: Attempt) -> None:
        if attempt.epoch is None or attempt.lease_ttl_seconds is None:
            return
        command = RenewReservation(
            command_id=new_id(), reservation_id=attempt.reservation_id, epoch=attempt.epoch
        )
        pause = renew_interval_seconds(attempt.lease_ttl_seconds)
        try:
            reply = await self.bus.request(command, timeout_seconds=REQUEST_TIMEOUT_SECONDS)
        except UnavailableError as error:
            log.warning("lease_not_renewed", error=str(error))
            pause = RETRY_SECONDS
        else:
            if isinstance(reply, Refused) and not reply.retryable:
                # The start goes on being sent: only an answer of the executor ends an attempt.
                log.warning("lease_lost", reservation_id=str(attempt.reservation_id))
                self._lost.add(attempt.reservation_id)
                self._next_at.pop(attempt.reservation_id, None)
                return
            if isinstance(reply, Refused):
                pause = RETRY_SECONDS
        self._next_at[attempt.reservation_id] = asyncio.get_running_loop().time() + pause
