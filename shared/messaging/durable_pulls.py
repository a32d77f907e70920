"""Pulling durable events on, whatever becomes of a consumer's server or of our inbox there."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Final

import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from shared.logging import log
from shared.messaging.bus import Bus
from shared.messaging.routes import DurableRoute
from shared.messaging.streams import EVENTS

LEADERLESS_PAUSE_SECONDS: Final = 0.2
CHECK_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 5.0  # less than until others tell of it (`consumer_progress`)


@dataclass(slots=True)
class DurablePull:
    """Takes the place of the subscription that FastStream fetches from.

    `is_stale` has the next fetch come to a new inbox. `idle_since` is from when on fetches bring
    nothing, None while a message is handled. While a consumer has no leader its server refuses
    each request at once, and FastStream makes the next one at once: thousands a second.
    """

    bus: Bus
    durable: str
    subscription: JetStreamContext.PullSubscription
    is_stale: bool = False
    idle_since: float | None = None
    had_pending: bool = False

    async def fetch(self, batch: int = 1, timeout: float | None = None) -> list[Msg]:  # noqa: ASYNC109  # as nats-py's
        """Return what comes in time. Raises nats.errors.TimeoutError where nothing does."""
        if self.idle_since is None:
            self.idle_since = time.monotonic()
        try:
            if self.is_stale:
                await self._renew()
            messages = await self.subscription.fetch(batch, timeout)
        except (nats.errors.TimeoutError, nats.errors.ConnectionClosedError):
            raise
        except nats.errors.Error as error:
            log.debug("pull_refused", consumer=self.durable, error=repr(error))
            await asyncio.sleep(LEADERLESS_PAUSE_SECONDS)
            raise nats.errors.TimeoutError from error
        self.idle_since = None
        return messages

    def note_pending(self, pending: int) -> None:
        """Take what the server says to wait for us; silence over two such looks makes us stale."""
        silent_for = 0.0 if self.idle_since is None else time.monotonic() - self.idle_since
        if pending and self.had_pending and silent_for > SILENT_SECONDS:
            log.warning("consumer_silent", consumer=self.durable, pending=pending)
            self.is_stale, self.idle_since = True, None
        self.had_pending = bool(pending)

    async def _renew(self) -> None:
        # Not beside a fetch: nats-py cancels the task that waits at what is unsubscribed.
        subscription = self.subscription
        self.subscription = await self.bus.jetstream.pull_subscribe_bind(
            consumer=self.durable, stream=EVENTS.name, inbox_prefix=self.bus.pull_inbox
        )
        self.is_stale = False
        await subscription.unsubscribe()

    async def unsubscribe(self) -> None:
        """End it, as FastStream does at its stop."""
        await self.subscription.unsubscribe()


@dataclass(slots=True)
class DurablePulls:
    """The durable consumers of a bus: installed once it has started, then watched."""

    bus: Bus
    _pulls: dict[str, DurablePull] = field(default_factory=dict, init=False)

    def install(self) -> None:
        """Put ourselves between FastStream's subscribers and their subscriptions."""
        for subscriber in self.bus.broker.subscribers:
            subscription = getattr(subscriber, "subscription", None)
            if isinstance(subscription, JetStreamContext.PullSubscription):
                durable = _durable_of(subscription)
                self._pulls[durable] = DurablePull(self.bus, durable, subscription)
                subscriber.subscription = self._pulls[durable]  # type: ignore[attr-defined]  # as read

    async def watch(self) -> None:
        """Make consumers that are gone, and renew the pulls of those that are silent, for ever."""
        while self._pulls:
            await asyncio.sleep(CHECK_SECONDS)
            if self.bus.is_connected:
                for route in self.bus.durable_routes:
                    await self._check(route)

    async def _check(self, route: DurableRoute) -> None:
        streams = self.bus.nats.jetstream(timeout=ANSWER_SECONDS)
        pull = self._pulls[route.durable]
        try:
            info = await streams.consumer_info(str(EVENTS.name), route.durable)
            pull.note_pending(info.num_pending or 0)
        except NotFoundError:
            await self._make(route, pull)
        except (nats.errors.Error, OSError):
            return  # without a leader; `StreamDeclaration` tells of streams that do not answer

    async def _make(self, route: DurableRoute, pull: DurablePull) -> None:
        log.warning("consumer_missing", consumer=route.durable)
        try:
            await self.bus.jetstream.add_consumer(str(EVENTS.name), route.consumer())
        except (nats.errors.Error, OSError) as error:
            log.warning("consumer_not_made", consumer=route.durable, error=repr(error))
            return
        pull.is_stale = True


def _durable_of(subscription: Any) -> str:
    return str(subscription._consumer)  # noqa: SLF001  # nats-py shows it nowhere else
