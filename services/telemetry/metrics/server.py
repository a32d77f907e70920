"""Answers a scrape: `GET /metrics`, one answer per connection.

prometheus_client's own server sets clients no bounds: 500 half requests hold 500 threads for good.
Here at most 32 connections last 5 s each. For authentication put a proxy in front.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final

from shared.host_header import host_names, is_known_host
from shared.logging import log
from shared.tls.reloading import ReloadingCertificate
from shared.waiting import within

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_REQUEST_BYTES: Final = 16 * 1024
REQUEST_SECONDS: Final = 5.0
MAX_CONNECTIONS: Final = 32


class MetricsServer:
    """Never ends its process: an agent without metrics is better than none."""

    def __init__(
        self,
        host: str,
        port: int,
        text: Callable[[], bytes],
        allowed_hosts: Iterable[str] = (),
        certificate: ReloadingCertificate | None = None,
    ) -> None:
        self._certificate = certificate
        self._host, self._port, self._text = host, port, text
        self._names = host_names(host, allowed_hosts)
        self._connections = 0
        self.bound_port: int | None = None

    async def run(self) -> None:
        """Serve until cancelled; return at once where that is not possible."""
        try:
            server = await asyncio.start_server(
                self._answer,
                self._host,
                self._port,
                limit=MAX_REQUEST_BYTES,
                **self._tls_options(),
            )
        except OSError as error:
            log.warning(
                "metrics_unavailable",
                host=self._host,
                port=self._port,
                error=str(error),
                hint="dcgm-exporter has the same port by default: stop it, set"
                " GPUSTEWARD_TELEMETRY_METRICS_PORT to another, or"
                " GPUSTEWARD_TELEMETRY_METRICS to false",
            )
            return
        async with server:
            self.bound_port = server.sockets[0].getsockname()[1]
            log.info("metrics_served", host=self._host, port=self.bound_port)
            await server.serve_forever()

    def _tls_options(self) -> dict[str, Any]:
        if self._certificate is None:
            return {}
        # Who does not shake hands keeps a connection for no longer than who does not ask.
        return {"ssl": self._certificate.context, "ssl_handshake_timeout": REQUEST_SECONDS}

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= MAX_CONNECTIONS:
                async with within(REQUEST_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._response(head))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            self._connections -= 1
            with contextlib.suppress(OSError):
                writer.close()

    def _response(self, head: bytes) -> bytes:
        method, _, target = head.split(b"\r\n", 1)[0].partition(b" ")
        path = target.split(b" ", 1)[0].split(b"?", 1)[0]
        if not is_known_host(_host(head), self._names):
            return _response(HTTPStatus.FORBIDDEN, b"expected a Host of this agent\n")
        if path != b"/metrics":
            return _response(HTTPStatus.NOT_FOUND, b"see /metrics\n")
        if method not in {b"GET", b"HEAD"}:
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, b"")
        return _response(HTTPStatus.OK, self._text(), with_body=method == b"GET")


def _host(head: bytes) -> str | None:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"host":
            return value.strip().decode("latin-1")
    return None


def _response(status: HTTPStatus, body: bytes, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
