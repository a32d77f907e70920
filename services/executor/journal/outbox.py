"""Sends what the journal has staged: events to the stream, releases to the scheduler."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from schemas.errors import Refused
from schemas.scheduler.reservations import ReleaseReservation
from services.executor.journal import outbox_rows
from services.executor.journal.journal import Journal
from shared.errors import RefusedError, UnavailableError
from shared.logging import log
from shared.messaging.bus import Bus
from shared.messaging.streams import EVENTS
from shared.waiting import wait_for, within

BATCH: Final = 100
IDLE_SECONDS: Final = 1.0
FIRST_BACKOFF_SECONDS: Final = 0.2
LAST_BACKOFF_SECONDS: Final = 5.0
REQUEST_TIMEOUT_SECONDS: Final = 5.0


@dataclass(slots=True, kw_only=True)
class Outbox:
    """Sends until answered; what a transaction stages is sent at once."""

    journal: Journal
    bus: Bus
    _events_due: asyncio.Event = field(default_factory=asyncio.Event)
    _releases_due: asyncio.Event = field(default_factory=asyncio.Event)
    _sending_events: asyncio.Lock = field(default_factory=asyncio.Lock)
    _sending_releases: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.journal.on_change = self.wake

    def wake(self) -> None:
        self._events_due.set()
        self._releases_due.set()

    async def age_seconds(self, now: float) -> float:
        """Return the age of the oldest event that the bus has not stored, by time.time(); 0 if
        there is none.
        """
        oldest = await self.journal.transact(outbox_rows.oldest_unsent_at)
        return 0.0 if oldest is None else max(0.0, now - oldest)

    async def stream_seen(self, stream: str, created_at: datetime) -> None:
        """Publish stored events again if this is another stream than the one they went to."""
        if stream == EVENTS.name and await self.journal.transact(
            lambda connection: outbox_rows.is_new_stream(connection, created_at.isoformat())
        ):
            self.wake()

    async def send_events(self) -> None:
        """Publish staged events in their order, for ever. Raises UnavailableError."""
        while True:
            self._events_due.clear()
            await self._send_events()
            await wait_for(self._events_due, IDLE_SECONDS)

    async def send_releases(self) -> None:
        """Give reservations back, for ever; one that is not answered holds up no other."""
        pause_seconds = FIRST_BACKOFF_SECONDS
        while True:
            self._releases_due.clear()
            if await self._send_releases():
                pause_seconds = FIRST_BACKOFF_SECONDS
                await wait_for(self._releases_due, IDLE_SECONDS)
                continue
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, LAST_BACKOFF_SECONDS)

    async def flush(self, timeout_seconds: float) -> None:
        """Send what can be sent now; the rest stays for the next start."""
        try:
            async with within(timeout_seconds):
                await self._send_events()
                await self._send_releases()
        except (TimeoutError, UnavailableError) as error:
            log.warning("sending_postponed", error=repr(error))

    async def _send_events(self) -> None:
        async with self._sending_events:
            while events := await self.journal.transact(
                lambda connection: outbox_rows.unsent_events(connection, BATCH)
            ):
                for number, event in events:
                    try:
                        await self.bus.publish_event(event)
                    except RefusedError as error:
                        # Left unsent it would hold up every event behind it.
                        log.error("event_unsendable", error=error.message)
                    await self._mark_sent(number)

    async def _mark_sent(self, number: int) -> None:
        await self.journal.transact(lambda connection: outbox_rows.mark_sent(connection, (number,)))

    async def _send_releases(self) -> bool:
        """Send the queued releases; return whether none is left."""
        async with self._sending_releases:
            releases = await self.journal.transact(outbox_rows.unsent_releases)
            answered = await asyncio.gather(*(self._send_release(release) for release in releases))
        return all(answered)

    async def _send_release(self, release: ReleaseReservation) -> bool:
        try:
            reply = await self.bus.request(release, timeout_seconds=REQUEST_TIMEOUT_SECONDS)
        except UnavailableError as error:
            log.warning("release_postponed", error=str(error))
            return False
        if isinstance(reply, Refused):
            log.info("release_refused", code=reply.code, message=reply.message)
            if reply.retryable:
                return False
        await self.journal.transact(
            lambda connection: outbox_rows.forget_release(connection, release.reservation_id)
        )
        return True
