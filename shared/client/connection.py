"""One gateway over HTTP and WebSocket: requests, decoded answers, errors by what went wrong."""

import asyncio
import io
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TypeVar
from urllib.parse import quote
from uuid import UUID

import aiohttp
import msgspec

from schemas.base import ListView
from schemas.errors import ErrorCode
from schemas.gateway.problem import Problem
from schemas.gateway.tokens import ACCOUNT_HEADER
from shared.client.account import account_name
from shared.client.discovery import Address
from shared.client.errors import ApiError, PlatformUnreachable
from shared.client.reaching import unreachable
from shared.ids import new_id

T = TypeVar("T")
L = TypeVar("L", bound=ListView)
LARGEST_PAGE: Final = 1000
Parameters = Mapping[str, str | int | UUID | None]

API: Final = "/api/v1"
RETRY_SECONDS: Final = 0.25
_RETRIED: Final = frozenset(
    {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE}
)


class GatewayConnection:
    """An asynchronous context manager that holds the connections to one gateway.

    Every method raises ApiError when the gateway refuses, PlatformUnreachable when nothing answers.
    What is being started again, as the gateway or the supervisor beside it says, is asked again
    until the time-out; with `patience_seconds` anything unreachable or unavailable is, for so long.
    Changes carry an idempotency key, so a repeated one is the same one.
    """

    def __init__(
        self, address: Address, *, timeout_seconds: float = 15.0, patience_seconds: float = 0.0
    ) -> None:
        self.address = address
        self.timeout_seconds = timeout_seconds
        self._patience_seconds = patience_seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        token = self.address.token
        account = {ACCOUNT_HEADER: quote(account_name())}
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}", **account} if token else account,
            timeout=aiohttp.ClientTimeout(total=self.timeout_seconds),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def is_alive(self) -> bool:
        """Whether a gateway answers here at all."""
        try:
            async with self._open.get(f"{self.address.url}/healthz") as response:
                return response.status < HTTPStatus.INTERNAL_SERVER_ERROR
        except (aiohttp.ClientError, TimeoutError):
            return False

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("StewardClient is used outside `async with`")
        return self._session

    @asynccontextmanager
    async def socket(self, path: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """An open WebSocket, closed at the end of the block."""
        try:
            socket = await self._open.ws_connect(
                f"{self.address.url}{path}", heartbeat=20.0, max_msg_size=1024 * 1024
            )
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(_plain_problem(error.status, f"{path}: {error.message}")) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise unreachable(self.address.url, error) from error
        async with socket:
            yield socket

    async def get(
        self,
        path: str,
        reply: type[T],
        parameters: Parameters | None = None,
        *,
        timeout_seconds: float | None = None,
    ) -> T:
        """Request something below the API's root; `reply` is what it is decoded as."""
        body = await self.send("GET", path, None, parameters, timeout_seconds=timeout_seconds)
        return self.decoded(body, reply)

    async def listed(
        self,
        path: str,
        view: type[L],
        items: Callable[[L], tuple[T, ...]],
        wanted: Parameters,
        limit: int | None = None,
    ) -> tuple[T, ...]:
        """A list, part by part, to its end or to `limit`."""
        found: list[T] = []
        cursor = None
        while True:
            left = LARGEST_PAGE if limit is None else min(limit - len(found), LARGEST_PAGE)
            page = await self.get(path, view, {**wanted, "limit": left, "cursor": cursor})
            found += items(page)
            cursor = page.next_cursor
            if cursor is None or (limit is not None and len(found) >= limit):
                return tuple(found[:limit])

    async def post(self, path: str, document: object, reply: type[T]) -> T:
        """Send a document below the API's root; `reply` is what the answer is decoded as."""
        return self.decoded(await self.send("POST", path, document), reply)

    async def send(
        self,
        method: str,
        path: str,
        document: object = None,
        parameters: Parameters | None = None,
        *,
        command_id: UUID | None = None,
        timeout_seconds: float | None = None,
    ) -> bytes:
        """Send bytes or a file as they are or a document as JSON; return the body of the answer."""
        headers = {"Accept": "application/json"}
        if method != "GET":
            headers["Idempotency-Key"] = str(command_id or new_id())
        if isinstance(document, bytes | Path | None):
            body = document
        else:
            body = msgspec.json.encode(document)
        if body is not None:
            headers["Content-Type"] = "application/json"
        given = {key: str(value) for key, value in (parameters or {}).items() if value is not None}
        began = time.monotonic()
        limit_seconds = timeout_seconds or self.timeout_seconds
        while True:
            try:
                return await self._once(method, path, body, given, headers, limit_seconds)
            except (PlatformUnreachable, ApiError) as error:
                retried_seconds = self._retried_seconds(error, limit_seconds)
                if time.monotonic() - began + RETRY_SECONDS > retried_seconds:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    def _retried_seconds(
        self, error: PlatformUnreachable | ApiError, limit_seconds: float
    ) -> float:
        """For how long to repeat what failed so."""
        if isinstance(error, PlatformUnreachable):
            is_passing = self.address.is_supervised
        elif error.problem.status in _RETRIED:
            is_passing = error.is_passing
        else:
            return 0.0
        return max(self._patience_seconds, limit_seconds if is_passing else 0.0)

    async def _once(
        self,
        method: str,
        path: str,
        body: bytes | Path | None,
        parameters: Mapping[str, str],
        headers: Mapping[str, str],
        limit_seconds: float,
    ) -> bytes:
        limit = aiohttp.ClientTimeout(total=limit_seconds)
        url = f"{self.address.url}{API}{path}"
        try:
            async with self._open.request(
                # A stream, which aiohttp sends in pieces, and closes.
                method,
                url,
                data=_stream(body),
                params=parameters,
                headers=headers,
                timeout=limit,
            ) as response:
                content = await response.read()
                status = response.status
                is_passing = "Retry-After" in response.headers
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise unreachable(self.address.url, error) from error
        if status >= HTTPStatus.BAD_REQUEST:
            raise ApiError(_problem(status, content), is_passing=is_passing)
        return content

    def decoded(self, content: bytes, reply: type[T]) -> T:
        """An answer as what it should be. Raises ApiError if it is not."""
        try:
            return msgspec.json.decode(content, type=reply)
        except msgspec.DecodeError as error:
            raise self.unreadable(getattr(reply, "__name__", "JSON"), str(error)) from error

    def unreadable(self, what: str, why: str) -> ApiError:
        """What to raise of an answer that no gateway of ours gives."""
        detail = f"{self.address.url} does not answer as a GPU Steward gateway ({what}: {why})"
        return ApiError(_plain_problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail))


async def decoded_frames(socket: aiohttp.ClientWebSocketResponse, frame: Any) -> AsyncIterator[Any]:
    """What arrives, decoded; kinds of frames that are not known here are skipped."""
    decoder = msgspec.json.Decoder(frame)
    async for message in socket:
        if message.type not in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
            continue
        try:
            yield decoder.decode(message.data)
        except msgspec.ValidationError:
            # A newer gateway may send more kinds of frames than we know.
            continue


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
