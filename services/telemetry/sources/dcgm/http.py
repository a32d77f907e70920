"""One HTTP GET, or PATCH, with one deadline for the whole answer.

http.client bounds each read only, so that a server that trickles would hold a worker thread.
"""

import asyncio
import contextlib
import ssl
from typing import Final
from urllib.parse import urlsplit

from services.telemetry.sources.source import ProbeHungError, SourceFailedError
from shared.waiting import within

MAX_BODY_BYTES: Final = 8 << 20
_CHUNK_BYTES: Final = 1 << 16


async def http_get(
    url: str,
    *,
    deadline_seconds: float,
    headers: str = "",
    trusted: ssl.SSLContext | None = None,
    patch: str | None = None,
) -> str:
    """The body of a 200. `headers` is whole lines; https trusts `trusted`, else the host's. With
    `patch` that is sent instead of a GET.

    Raises SourceFailedError where nothing listens, for another status, for a broken answer or one
    beyond 8 MiB; ProbeHungError after the deadline.
    """
    try:
        async with within(deadline_seconds):
            return await _get(url, headers, trusted, patch)
    except TimeoutError as error:
        raise ProbeHungError(
            f"expected {url} to answer within {deadline_seconds:g} s, it did not"
        ) from error


async def _get(url: str, headers: str, trusted: ssl.SSLContext | None, patch: str | None) -> str:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    try:
        reader, writer = await asyncio.open_connection(
            parts.hostname,
            parts.port or (443 if secure else 80),
            ssl=(trusted or ssl.create_default_context()) if secure else None,
        )
    except (OSError, ValueError) as error:
        raise SourceFailedError(f"{url} cannot be reached: {error}") from error
    try:
        # HTTP/1.0: the answer comes as it is, not in chunks, and ends with the connection.
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        method, sent = ("GET", b"") if patch is None else ("PATCH", patch.encode())
        length = f"Content-Length: {len(sent)}\r\n" if sent else ""
        head_sent = f"{method} {target} HTTP/1.0\r\nHost: {parts.netloc}\r\n{headers}{length}\r\n"
        writer.write(head_sent.encode() + sent)
        await writer.drain()
        head, body = await _answer(reader, url)
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise SourceFailedError(f"{url} broke off: {error}") from error
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    status = head.split(b"\r\n", 1)[0].decode(errors="replace")
    if status.split(" ")[1:2] != ["200"]:
        raise SourceFailedError(f"{url} answered {status}")
    _check_length(head, body, url)
    return body.decode(errors="replace")


async def _answer(reader: asyncio.StreamReader, url: str) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    body = bytearray()
    while chunk := await reader.read(_CHUNK_BYTES):
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise SourceFailedError(f"{url} answers without end")
    return head, bytes(body)


def _check_length(head: bytes, body: bytes, url: str) -> None:
    """A page that was cut off would show fewer GPUs than there are."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        is_length = name.strip().lower() == b"content-length" and value.strip().isdigit()
        if is_length and int(value) != len(body):
            raise SourceFailedError(f"{url} broke off: {len(body)} of {int(value)} bytes")
