"""How a service is put together, started and stopped; the same for all of them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import uvloop
from faststream import FastStream

from schemas.base import Command
from schemas.errors import Reply
from shared.background import Background
from shared.bus import Bus, Route
from shared.commands import OnReply, Sender
from shared.database import Connection, Database
from shared.lifecycle import notify_ready
from shared.logging import configure_logging, log
from shared.outbox import Relay

Step = Callable[[], Awaitable[None]]


async def _ignore_reply(_: Connection, command: Command, reply: Reply) -> None:
    log.info("command_answered", command=type(command).__name__, reply=type(reply).__name__)


class Service:
    """One service: its bus, its database, its routes and loops.

    Order of a start: database, bus, `start`, subscriptions, loops, `ready`; of a stop: `stop`,
    loops, subscriptions, bus, database. A service with a database also runs the relay of its outbox
    and the sender of its durable commands, whose answers go to `on_reply`.
    """

    def __init__(
        self,
        name: str,
        *,
        bus: Bus,
        database: Database | None = None,
        routes: Sequence[Route] = (),
        loops: Mapping[str, Step] | None = None,
        on_reply: OnReply = _ignore_reply,
        start: Step | None = None,
        ready: Step | None = None,
        stop: Step | None = None,
    ) -> None:
        self.name = name
        self.bus = bus
        self.database = database
        self.background = Background()
        self._loops = dict(loops or {})
        self._start, self._ready, self._stop = start, ready, stop
        self._on_reply = on_reply
        bus.include(routes)
        if database is not None:
            self._keep_events(database)
        self.app = FastStream(bus.broker, logger=None, lifespan=self._lifespan)
        self.app.on_startup(self._before_subscriptions)
        self.app.after_startup(self._after_subscriptions)
        self.app.on_shutdown(self._before_disconnect)

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; exit with status 1 when a loop fails."""
        configure_logging(self.name)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self.app.run(sleep_time=0.05))
        except Exception:  # noqa: BLE001  # the process's own edge: the status tells of it
            log.exception("service_failed", name=self.name)
            sys.exit(1)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Service"]:
        """The service inside another program's event loop, for tests and tools."""
        async with self.app.lifespan_context():
            await self.app.start()
            try:
                yield self
            finally:
                await self.app.stop()

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        try:
            async with self.background.owned():
                yield
        finally:
            if self.database is not None:
                await self.database.close()

    async def _before_subscriptions(self) -> None:
        if self.database is not None:
            await self.database.open()
        await self.bus.open()
        if self._start is not None:
            await self._start()

    async def _after_subscriptions(self) -> None:
        self.background.start("watch_streams", self.bus.watch_streams)
        if self.database is not None:
            self.background.start("relay", self._relay.run)
            self.background.start("sender", self._sender.run)
        for name, loop in self._loops.items():
            self.background.start(name, loop)
        await self.bus.settle()
        if self._ready is not None:
            await self._ready()
        notify_ready()
        log.info("service_ready", name=self.name)

    async def _before_disconnect(self) -> None:
        if self._stop is not None:
            await self._stop()
        await self.background.stop()

    def _keep_events(self, database: Database) -> None:
        self._relay = Relay(database, self.bus)
        self._sender = Sender(database, self.bus, self._on_reply)
        self.bus.on_stream_seen.append(self._relay.stream_seen)

        async def keep_dead_letter(subject: str, body: bytes, error: str) -> None:
            log.error("dead_letter", subject=subject, error=error)
            async with database.transaction() as connection:
                await connection.execute(
                    "INSERT INTO dead_letter (subject, body, error) VALUES ($1, $2, $3)",
                    subject,
                    body,
                    error,
                )

        self.bus.dead_letter = keep_dead_letter
