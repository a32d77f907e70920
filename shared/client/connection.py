"""One gateway over HTTP and WebSocket: requests, decoded answers, errors by what went wrong."""

import asyncio
import io
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TypeVar, cast
from urllib.parse import quote
from uuid import UUID

import aiohttp
import msgspec

from schemas.base import MAX_PAGE, ListView
from schemas.errors import ErrorCode
from schemas.gateway import endpoints
from schemas.gateway.endpoint import Endpoint
from schemas.gateway.problem import Problem
from schemas.gateway.tokens import ACCOUNT_HEADER
from shared.client.account import account_name
from shared.client.discovery import Address
from shared.client.errors import ApiError, PlatformUnreachable
from shared.client.reaching import make_context, unreachable
from shared.ids import new_id

T = TypeVar("T")
L = TypeVar("L", bound=ListView)
RETRY_SECONDS: Final = 0.25
_RETRIED: Final = frozenset(
    {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE}
)


@dataclass(frozen=True, slots=True)
class _Request:
    """A request as it is sent, and sent again."""

    method: str
    address: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | Path | None


class GatewayConnection:
    """An asynchronous context manager that holds the connections to one gateway.

    Every method raises ApiError when the gateway refuses, PlatformUnreachable when nothing answers.
    What is being started again, as the gateway or the supervisor beside it says, is asked again
    until the time-out; with `retry_seconds` anything unreachable or unavailable is, for so long.
    Changes carry an idempotency key, so a repeated one is the same one.
    """

    def __init__(
        self, address: Address, *, timeout_seconds: float = 15.0, retry_seconds: float = 0.0
    ) -> None:
        self.address = address
        self.timeout_seconds = timeout_seconds
        self._retry_for_seconds = retry_seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        token = self.address.token
        account = {ACCOUNT_HEADER: quote(account_name())}
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}", **account} if token else account,
            timeout=aiohttp.ClientTimeout(total=self.timeout_seconds),
            connector=aiohttp.TCPConnector(ssl=make_context(self.address)),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def is_alive(self) -> bool:
        """Return True if a gateway answers at this address."""
        try:
            async with self._open.get(f"{self.address.url}{endpoints.IS_ALIVE.path}") as response:
                return response.status < HTTPStatus.INTERNAL_SERVER_ERROR
        except (aiohttp.ClientError, TimeoutError):
            return False

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("StewardClient is used outside `async with`")
        return self._session

    @asynccontextmanager
    async def socket(
        self, endpoint: Endpoint[Any], **parameters: Any
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """An open WebSocket, closed at the end of the block."""
        address, query = endpoint.fill(parameters)
        try:
            socket = await self._open.ws_connect(
                f"{self.address.url}{address}",
                params=query_texts(query),
                heartbeat=20.0,
                max_msg_size=1024 * 1024,
            )
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(_plain_problem(error.status, f"{address}: {error.message}")) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise unreachable(self.address.url, error) from error
        async with socket:
            yield socket

    async def call(
        self,
        endpoint: Endpoint[T],
        body: object = None,
        *,
        timeout_seconds: float | None = None,
        command_id: UUID | None = None,
        **parameters: Any,
    ) -> T:
        """Call an operation with the parameters of its path and query; return its answer.

        Of the body bytes and a file are sent as they are, anything else as JSON.
        """
        address, query = endpoint.fill(parameters)
        headers = {"Accept": "application/json"}
        if endpoint.method != "GET":
            headers["Idempotency-Key"] = str(command_id or new_id())
        if not isinstance(body, bytes | Path | None):
            body = msgspec.json.encode(body)
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = _Request(endpoint.method, address, query_texts(query), headers, body)
        started_at = time.monotonic()
        limit_seconds = timeout_seconds or endpoint.timeout_seconds or self.timeout_seconds
        while True:
            try:
                content = await self._once(request, limit_seconds)
                return self.decode(content, endpoint.answer)
            except (PlatformUnreachable, ApiError) as error:
                retried_seconds = self._retry_seconds(error, limit_seconds)
                if time.monotonic() - started_at + RETRY_SECONDS > retried_seconds:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    async def pieces(self, endpoint: Endpoint[bytes], **parameters: Any) -> AsyncIterator[bytes]:
        """Yield an answer that may be large as it comes; cut off, it is an error."""
        address, query = endpoint.fill(parameters)
        try:
            async with self._open.request(
                endpoint.method,
                f"{self.address.url}{address}",
                params=query_texts(query),
                timeout=aiohttp.ClientTimeout(sock_read=self.timeout_seconds),
            ) as response:
                if response.status >= HTTPStatus.BAD_REQUEST:
                    raise ApiError(_problem(response.status, await response.read()))
                async for piece in response.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise unreachable(self.address.url, error) from error

    async def list_all(
        self,
        endpoint: Endpoint[L],
        items: Callable[[L], tuple[T, ...]],
        limit: int | None = None,
        **parameters: Any,
    ) -> tuple[T, ...]:
        """Return a list, read page by page, to its end or to `limit`."""
        items_read: list[T] = []
        cursor = None
        while True:
            rows_left = MAX_PAGE if limit is None else min(limit - len(items_read), MAX_PAGE)
            page = await self.call(endpoint, limit=rows_left, cursor=cursor, **parameters)
            items_read += items(page)
            cursor = page.next_cursor
            if cursor is None or (limit is not None and len(items_read) >= limit):
                return tuple(items_read[:limit])

    def _retry_seconds(self, error: PlatformUnreachable | ApiError, limit_seconds: float) -> float:
        """Return for how many seconds to retry a request that failed with this error."""
        if isinstance(error, PlatformUnreachable):
            is_passing = self.address.is_supervised
        elif error.problem.status in _RETRIED:
            is_passing = error.is_passing
        else:
            return 0.0
        return max(self._retry_for_seconds, limit_seconds if is_passing else 0.0)

    async def _once(self, request: _Request, limit_seconds: float) -> bytes:
        try:
            async with self._open.request(
                request.method,
                f"{self.address.url}{request.address}",
                # A stream, which aiohttp sends in pieces, and closes.
                data=_stream(request.body),
                params=request.query,
                headers=request.headers,
                timeout=aiohttp.ClientTimeout(total=limit_seconds),
                # A file that is too large is refused before it is sent.
                expect100=isinstance(request.body, Path),
            ) as response:
                content = await response.read()
                status = response.status
                is_passing = "Retry-After" in response.headers
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise unreachable(self.address.url, error) from error
        if status >= HTTPStatus.BAD_REQUEST:
            raise ApiError(_problem(status, content), is_passing=is_passing)
        return content

    def decode(self, content: bytes, reply: type[T]) -> T:
        """An answer as what it should be. Raises ApiError if it is not."""
        if reply is bytes:
            return cast(T, content)
        if reply is str:
            return cast(T, content.decode())
        try:
            return msgspec.json.decode(content, type=reply)
        except msgspec.DecodeError as error:
            raise self.unreadable(getattr(reply, "__name__", "JSON"), str(error)) from error

    def unreadable(self, what: str, why: str) -> ApiError:
        """Make the error for an answer that no gateway of this product gives."""
        detail = f"{self.address.url} does not answer as a GPU Steward gateway ({what}: {why})"
        return ApiError(_plain_problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail))


async def decode_frames(socket: aiohttp.ClientWebSocketResponse, frame: Any) -> AsyncIterator[Any]:
    """Yield what arrives, decoded; unknown kinds of frames are skipped."""
    decoder = msgspec.json.Decoder(frame)
    async for message in socket:
        if message.type not in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
            continue
        try:
            yield decoder.decode(message.data)
        except msgspec.ValidationError:
            # A newer gateway may send more kinds of frames than we know.
            continue


def query_texts(query: Mapping[str, object]) -> dict[str, str]:
    """Return a query's parameters as the gateway reads them, without those that are None."""
    texts = {name: _query_text(value) for name, value in query.items()}
    return {name: text for name, text in texts.items() if text is not None}


def _query_text(value: object) -> str | None:
    match value:
        case None | ():
            return None
        case bool():
            return str(value).lower()
        case datetime():
            return value.isoformat()
        case tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)


def _stream(body: bytes | Path | None) -> BinaryIO | None:
    if isinstance(body, Path):
        return body.open("rb")
    return io.BytesIO(body) if body is not None else None


def _problem(status: int, content: bytes) -> Problem:
    try:
        return msgspec.json.decode(content, type=Problem)
    except msgspec.DecodeError:
        text = content.decode(errors="replace").strip()[:500]
        return _plain_problem(status, text or "an empty answer, not a GPU Steward gateway's")


def _plain_problem(status: int, detail: str) -> Problem:
    by_status = {
        401: ErrorCode.UNAUTHENTICATED,
        403: ErrorCode.FORBIDDEN,
        404: ErrorCode.NOT_FOUND,
        413: ErrorCode.TOO_LARGE,
        429: ErrorCode.TOO_MANY_REQUESTS,
        503: ErrorCode.UNAVAILABLE,
        504: ErrorCode.TIMEOUT,
    }
    internal = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    code = by_status.get(status, ErrorCode.INTERNAL if internal else ErrorCode.BAD_REQUEST)
    return Problem(
        type="about:blank", title=f"HTTP {status}", status=status, detail=detail, code=code.value
    )
