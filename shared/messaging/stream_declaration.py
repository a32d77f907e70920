"""Declaring the streams and the durable consumers, again whenever the server has lost them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import nats.errors
from nats.js.api import StreamConfig
from nats.js.errors import APIError, NotFoundError

from schemas.base import NODE_PREFIX
from shared.errors import UnavailableError
from shared.logging import log
from shared.messaging.bus import Bus
from shared.messaging.settlement import RETRY_SECONDS
from shared.messaging.streams import EVENTS, STREAMS

StreamSeen = Callable[[str, datetime], Awaitable[None]]

WATCH_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class StreamDeclaration:
    """The streams, and the consumers of the bus's durable routes.

    `on_seen` gets the creation time of each stream first met or made anew; `on_new` is called
    when one was made anew, after everything is declared.
    """

    bus: Bus
    on_seen: Sequence[StreamSeen] = ()
    on_new: Callable[[], Awaitable[None]] | None = None
    _created: dict[str, datetime] = field(default_factory=dict, init=False)

    async def declare(self) -> None:
        """Declare everything, waiting for the server without limit."""
        while True:
            try:
                await self._declare()
                return
            except (nats.errors.Error, OSError, TimeoutError, UnavailableError) as error:
                log.warning("streams_undeclared", error=repr(error))
                await asyncio.sleep(RETRY_SECONDS / 4)

    async def watch(self) -> None:
        """Declare everything again when a stream is a new one, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if not self.bus.is_connected:
                continue
            try:
                new = await self._declare()
            except (nats.errors.Error, OSError, TimeoutError) as error:
                log.info("streams_unreachable", error=repr(error))
                continue
            if new:
                log.warning("streams_are_new", streams=new)
                if self.on_new is not None:
                    await self.on_new()

    async def _declare(self) -> list[str]:
        """Returns the names of the streams that are other ones than last time."""
        new = []
        for stream in STREAMS:
            name = str(stream.name)
            created = await self._declare_stream(stream)
            before = self._created.get(name)
            if before == created:
                continue
            if name == EVENTS.name:
                for route in self.bus.durable_routes:
                    await self.bus.jetstream.add_consumer(name, route.consumer())
            for callback in self.on_seen:
                await callback(name, created)
            self._created[name] = created
            if before is not None:
                new.append(name)
        return new

    async def _declare_stream(self, stream: StreamConfig) -> datetime:
        name, jetstream = str(stream.name), self.bus.jetstream
        try:
            info = await jetstream.stream_info(name)
        except NotFoundError:
            if (self.bus.user or "").startswith(NODE_PREFIX):
                raise  # a node may not make streams: the platform's services do
            try:
                info = await jetstream.add_stream(stream)
            except APIError:  # another service was quicker
                info = await jetstream.stream_info(name)
        if info.created is None:
            raise UnavailableError(f"stream {name} does not say when it was created")
        return info.created
