"""How a service is put together, started and stopped; the same for all of them."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import uvloop
from faststream import FastStream

from schemas.backlog import BACKLOG_OF
from schemas.base import Command
from schemas.errors import Reply
from shared.background import Background
from shared.lifecycle import forget_ready, give_back_memory, notify_ready
from shared.logging import configure_logging, log
from shared.messaging.bus import Bus, Route, query_route
from shared.messaging.durable_pulls import DurablePulls
from shared.messaging.stream_declaration import StreamDeclaration, StreamSeen
from shared.settings import SettingsError
from shared.waiting import cancel_and_wait

if TYPE_CHECKING:
    from shared.postgres.commands import OnReply
    from shared.postgres.database import Connection, Database

Step = Callable[[], Awaitable[None]]


async def _ignore_reply(_: "Connection", command: Command, reply: Reply) -> None:
    log.info("command_answered", command=type(command).__name__, reply=type(reply).__name__)


async def _log_dead_letter(subject: str, body: bytes, error: str) -> None:
    log.error("dead_letter", subject=subject, bytes=len(body), error=error)


def run_service(create: Callable[[], "Service"]) -> None:
    """A service's whole life. Settings that it refuses, and a database that it does, end it with a
    sentence and EX_CONFIG.
    """
    forget_ready()
    try:
        service = create()
        give_back_memory()
        gc.freeze()  # it lives as long as the process: no collection has to look through it
        service.run()
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201  # the process's own edge, before it can log
        sys.exit(os.EX_CONFIG)


class Service:
    """One service: its bus, its database, its routes and loops.

    Order of a start: database, bus, `start`, subscriptions, loops, `ready`; of a stop: `stop`,
    loops, subscriptions, bus, database. A service with a database also runs the relay of its outbox
    and the sender of its durable commands, whose answers go to `on_reply`. The streams' events go
    to `on_stream_seen` and `on_new_stream`, which `StreamDeclaration` describes.
    """

    def __init__(
        self,
        name: str,
        *,
        bus: Bus,
        database: "Database | None" = None,
        routes: Sequence[Route] = (),
        loops: Mapping[str, Step] | None = None,
        on_reply: "OnReply" = _ignore_reply,
        start: Step | None = None,
        ready: Step | None = None,
        stop: Step | None = None,
        on_stream_seen: StreamSeen | None = None,
        on_new_stream: Step | None = None,
    ) -> None:
        self.name = name
        self.bus = bus
        self.database = database
        self.background = Background()
        self._loops = dict(loops or {})
        self._start, self._ready, self._stop = start, ready, stop
        dead_letter = _log_dead_letter
        on_seen = [on_stream_seen] if on_stream_seen is not None else []
        if database is not None:
            # Here, as an agent of a node has no database, and asyncpg takes 3 MiB.
            from shared.postgres.commands import Sender
            from shared.postgres.outbox import Relay, store_dead_letter

            relay, sender = Relay(database, bus), Sender(database, bus, on_reply)
            self._loops |= {"relay": relay.run, "sender": sender.run}
            dead_letter = partial(store_dead_letter, database)
            on_seen.append(relay.stream_seen)
            if name in BACKLOG_OF:
                routes = [*routes, query_route(relay.backlog, BACKLOG_OF[name])]
        bus.include(routes, dead_letter)
        self._streams = StreamDeclaration(bus, on_seen, on_new_stream)
        self._pulls = DurablePulls(bus)
        self.app = FastStream(bus.broker, logger=None, lifespan=self._lifespan)
        self.app.on_startup(self._before_subscriptions)
        self.app.after_startup(self._after_subscriptions)
        self.app.on_shutdown(self._before_disconnect)

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; exit with status 1 when a loop fails.

        Raises SettingsError if the database is not one of this release.
        """
        configure_logging(self.name)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._run())
        except SettingsError:
            raise
        except Exception:  # noqa: BLE001  # the process's own edge: the status shows it
            log.exception("service_failed", name=self.name)
            sys.exit(1)

    async def _run(self) -> None:
        """Run until a signal, also one that comes before the start is over.

        FastStream's own way looks for one many times a second, a third of what an idle agent costs.
        """
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)

        def end_if_failed(start: asyncio.Task[None]) -> None:
            if not start.cancelled() and start.exception() is not None:
                ended.set()

        async with self.app.lifespan_context():
            starting = loop.create_task(self.app.start())
            starting.add_done_callback(end_if_failed)
            try:
                await ended.wait()
                if starting.done():
                    starting.result()
                await self.app.stop()
            finally:  # also where a loop failed: the start may wait for what that loop was to do
                await cancel_and_wait(starting)

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
            async with self.background.own_loops():
                yield
        finally:
            if self.database is not None:
                await self.database.close()

    async def _before_subscriptions(self) -> None:
        if self.database is not None:
            await self.database.open()
        await self.bus.open()
        await self._streams.declare()
        if self._start is not None:
            await self._start()

    async def _after_subscriptions(self) -> None:
        self._pulls.install()
        await self.bus.start_concurrent()
        self.background.start("watch_streams", self._streams.watch)
        self.background.start("watch_consumers", self._pulls.watch)
        for name, loop in self._loops.items():
            self.background.start(name, loop)
        await self.bus.flush()
        if self._ready is not None:
            await self._ready()
        notify_ready()
        log.info("service_ready", name=self.name)

    async def _before_disconnect(self) -> None:
        if self._stop is not None:
            await self._stop()
        await self.background.stop()
        await self.bus.stop_concurrent()
