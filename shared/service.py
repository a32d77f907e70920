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
    """Run a service for its whole life, which is this process's. Settings that it refuses, and a
    database that it does, end it with a sentence and EX_CONFIG.
    """
    run_services([create])


def run_services(creates: Sequence[Callable[[], "Service"]]) -> None:
    """Run several services in this process, as `run_service` does one.

    It is ready when all of them are. A loop that fails in one ends all.
    """
    forget_ready()
    try:
        services = [create() for create in creates]
        give_back_memory()
        gc.freeze()  # they live as long as the process: no collection has to look through them
        _run_until_ended(services)
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201  # the process's own edge, before it can log
        sys.exit(os.EX_CONFIG)


def _run_until_ended(services: Sequence["Service"]) -> None:
    """Run until SIGTERM or SIGINT; exit with status 1 when a loop fails.

    Raises SettingsError if the database is not one of this release.
    """
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run_all(services))
    except SettingsError:
        raise
    except Exception:  # noqa: BLE001  # the process's own edge: the status shows it, the service logged it
        sys.exit(1)


async def _run_all(services: Sequence["Service"]) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    not_ready = len(services)

    def one_is_ready() -> None:
        nonlocal not_ready
        not_ready -= 1
        if not_ready == 0:
            notify_ready()

    # A task each, whose context has the service's name for what it logs.
    tasks = []
    for service in services:
        service.on_ready = one_is_ready
        tasks.append(loop.create_task(service.run_until(ended), name=service.name))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended.set()  # the others stop as on a signal
        await asyncio.wait(tasks)
        for task in tasks:
            task.result()
    finally:
        await cancel_and_wait(*tasks)


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
        self.on_ready = notify_ready  # which is of the process: one with several services waits
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

    async def run_until(self, ended: asyncio.Event) -> None:
        """Run until `ended` is set: by others, or here where the start fails. It may be set before
        the start is over. Logs and raises what the start or a loop raised.
        """
        configure_logging(self.name)
        try:
            await self._run_until(ended)
        except SettingsError:
            raise
        except Exception:
            log.exception("service_failed", name=self.name)
            raise

    async def _run_until(self, ended: asyncio.Event) -> None:
        # FastStream's own way looks for an end many times a second, a third of what an idle agent
        # costs.

        def end_if_failed(start: asyncio.Task[None]) -> None:
            if not start.cancelled() and start.exception() is not None:
                ended.set()

        async with self.app.lifespan_context():
            starting = asyncio.get_running_loop().create_task(self.app.start())
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
        self.on_ready()
        log.info("service_ready", name=self.name)

    async def _before_disconnect(self) -> None:
        if self._stop is not None:
            await self._stop()
        await self.background.stop()
        await self.bus.stop_concurrent()
