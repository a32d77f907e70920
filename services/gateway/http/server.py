"""The HTTP server as one of the service's loops."""

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import h11
import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

from shared.tls.reloading import ReloadingCertificate

SHUTDOWN_SECONDS: Final = 3
BACKLOG: Final = 512
STUCK_SECONDS: Final = 60.0
WEBSOCKET_PING_SECONDS: Final = 20.0
SEND_FRAME: Final = "gpusteward.send_frame"
MAX_FRAME_BYTES: Final = 1 << 16  # clients send nothing but control frames


class _IdleClientTimeout(asyncio.Protocol):
    """Cuts a client off that has read nothing for a minute: neither waiting for it to read nor
    closing its connection, which waits for the same, would end. One timer while it does not read,
    none for each message.
    """

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _cut: asyncio.TimerHandle | None = None

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._cut = self.loop.call_later(STUCK_SECONDS, self.transport.abort)

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        self._keep()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._keep()
        super().connection_lost(exc)

    def _keep(self) -> None:
        if self._cut is not None:
            self._cut.cancel()


class _Http(_IdleClientTimeout, H11Protocol):
    """Cuts a client off as well that takes more than a minute or two to ask for something, or sends
    nothing of a body for as long.
    """

    _check: asyncio.TimerHandle | None = None
    _has_spoken = False
    _cycle_before: Any = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._check = self.loop.call_later(STUCK_SECONDS, self._check_progress)

    @override
    def data_received(self, data: bytes) -> None:
        self._has_spoken = True
        super().data_received(data)

    @override
    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._stop_checks()  # the connection is another protocol's from now on
        super().handle_websocket_upgrade(event)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_checks()
        super().connection_lost(exc)

    def _check_progress(self) -> None:
        state = self.conn.their_state
        is_kept_alive = self.timeout_keep_alive_task is not None  # uvicorn ends it in seconds
        asks_nothing = state is h11.IDLE and self.cycle is self._cycle_before and not is_kept_alive
        if asks_nothing or (state is h11.SEND_BODY and not self._has_spoken):
            self.transport.abort()
            return
        self._has_spoken, self._cycle_before = False, self.cycle
        self._check = self.loop.call_later(STUCK_SECONDS, self._check_progress)

    def _stop_checks(self) -> None:
        if self._check is not None:
            self._check.cancel()


class _WebSocket(_IdleClientTimeout, WebSocketsSansIOProtocol):
    """Also writes a frame that was made for many clients, as it is: a message of type
    `SEND_FRAME`.
    """

    @override
    async def send(self, message: Any) -> None:
        if message["type"] != SEND_FRAME:
            await super().send(message)
            return
        if not self.writable.is_set():
            await self.writable.wait()
        if self.disconnected or self.close_sent or self.conn.state is not State.OPEN:
            raise ClientDisconnected
        self.transport.write(message["frame"])


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


def allow_many_clients() -> None:
    """Raise the limit of open files, which is 1,024 on most systems: each client is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def listening_socket(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """Bound and listening. Raises OSError where the address is taken, a shared one where somebody
    has it alone.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host.strip("[]"), port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


@dataclass(slots=True)
class HttpServer:
    """Serves an ASGI application on one address. `port` is the real one once it serves; with a
    `certificate` it serves https alone.

    From `trusted_proxies` alone it is believed who asks them, and that they were asked over TLS.
    """

    application: Any
    host: str
    port: int
    shares_port: bool = False
    certificate: ReloadingCertificate | None = None
    trusted_proxies: str = ""
    _started: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Serve until cancelled. Raises OSError where the address is taken."""
        allow_many_clients()
        listening = listening_socket(self.host, self.port, is_shared=self.shares_port)
        self.port = listening.getsockname()[1]
        server = _Server(self._config(), self._started)
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            await asyncio.shield(serving)
        finally:
            server.should_exit = True
            await serving
            listening.close()

    async def wait_until_started(self) -> None:
        """Wait until requests are answered."""
        await self._started.wait()

    def _context_factory(self) -> Callable[..., ssl.SSLContext] | None:
        if (certificate := self.certificate) is None:
            return None
        return lambda *_: certificate.context

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self.application,
            http=_Http,
            ws=_WebSocket,
            ws_per_message_deflate=False,
            ws_max_size=MAX_FRAME_BYTES,
            ws_ping_interval=WEBSOCKET_PING_SECONDS,
            ws_ping_timeout=WEBSOCKET_PING_SECONDS,
            lifespan="off",
            proxy_headers=bool(self.trusted_proxies),
            forwarded_allow_ips=self.trusted_proxies or None,
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            ssl_context_factory=self._context_factory(),
        )
