"""A TCP connection that can be held up or cut, as a bad network would do it."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

from typing_extensions import override

from shared.waiting import cancel_and_wait

SOCKET: Final = ".s.PGSQL.5432"


class Direction(Enum):
    """As the client of a link sees it."""

    SENT = "sent"
    RECEIVED = "received"


@dataclass(slots=True)
class Link:
    """Forwards to a server's URL; what is held up arrives later and in order, nothing is lost
    unless it is cut.
    """

    server_url: str
    _open: dict[Direction, asyncio.Event] = field(
        default_factory=lambda: {direction: asyncio.Event() for direction in Direction}
    )
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def start(self) -> str:
        """The URL to connect to instead."""
        self.let_through()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        parts = urlsplit(self.server_url)
        return parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}").geturl()

    def hold_up(self, *directions: Direction) -> None:
        """In these directions; without any in both."""
        for direction in directions or Direction:
            self._open[direction].clear()

    def let_through(self) -> None:
        for opened in self._open.values():
            opened.set()

    def cut(self) -> None:
        """End every connection; new ones are taken."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def stop(self) -> None:
        self.let_through()
        if self._server is not None:
            self._server.close()
        self.cut()
        await cancel_and_wait(*self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await self._connect()
        except OSError:
            writer.close()
            return
        pair = {writer, far_writer}
        self._writers |= pair
        for source, target, direction in (
            (reader, far_writer, Direction.SENT),
            (far_reader, writer, Direction.RECEIVED),
        ):
            task = asyncio.create_task(self._pump(source, target, pair, self._open[direction]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self.server_url)
        return await asyncio.open_connection(parts.hostname, parts.port)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        pair: set[asyncio.StreamWriter],
        opened: asyncio.Event,
    ) -> None:
        # RuntimeError is what uvloop says of a transport that the other direction has closed.
        with contextlib.suppress(OSError, RuntimeError):
            while data := await source.read(65_536):
                await opened.wait()
                target.write(data)
                await target.drain()
        for writer in pair:
            writer.transport.abort()
        self._writers -= pair


@dataclass(slots=True)
class PostgresLink(Link):
    """The same before a Postgres that listens on a socket in a directory, `server_url` a DSN."""

    directory: Path = field(kw_only=True)

    @override
    async def start(self) -> str:
        self.let_through()
        self.directory.mkdir()
        self._server = await asyncio.start_unix_server(self._accept, self.directory / SOCKET)
        return f"{self.server_url.partition('?')[0]}?host={quote(str(self.directory))}"

    @override
    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host = parse_qs(urlsplit(self.server_url).query)["host"][0]
        return await asyncio.open_unix_connection(Path(host) / SOCKET)
