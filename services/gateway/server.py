"""The HTTP server as one of the service's loops."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import uvicorn
from typing_extensions import override

SHUTDOWN_SECONDS: Final = 3
BACKLOG: Final = 512
WEBSOCKET_PING_SECONDS: Final = 20.0
LARGEST_FRAME_BYTES: Final = 1 << 16  # clients send nothing but control frames


class _Server(uvicorn.Server):
    """Leaves signals to the service, which stops it, and says when it listens."""

    def __init__(self, config: uvicorn.Config, listening: asyncio.Event) -> None:
        super().__init__(config)
        self._listening = listening

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening.set()

    @contextlib.contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        yield


def listening_socket(host: str, port: int) -> socket.socket:
    """Bound and listening. Raises OSError where the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host.strip("[]"), port))
        found.listen(BACKLOG)
        found.setblocking(False)
    except OSError:
        found.close()
        raise
    return found


@dataclass(slots=True)
class HttpServer:
    """Serves an ASGI application on one address. `port` is the real one once it serves."""

    application: Any
    host: str
    port: int
    _started: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Serve until cancelled. Raises OSError where the address is taken."""
        listening = listening_socket(self.host, self.port)
        self.port = listening.getsockname()[1]
        server = _Server(self._config(), self._started)
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            await asyncio.shield(serving)
        finally:
            server.should_exit = True
            await serving
            listening.close()

    async def started(self) -> None:
        """Wait until requests are answered."""
        await self._started.wait()

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self.application,
            ws="websockets-sansio",
            ws_per_message_deflate=False,
            ws_max_size=LARGEST_FRAME_BYTES,
            ws_ping_interval=WEBSOCKET_PING_SECONDS,
            ws_ping_timeout=WEBSOCKET_PING_SECONDS,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
