"""Requests to an OpenID provider, each bounded in time and size; what fails is a sentence."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from shared.errors import UnavailableError
from shared.host_header import is_loopback
from shared.waiting import within

if TYPE_CHECKING:
    import aiohttp

TIMEOUT_SECONDS: Final = 5.0
MAX_ANSWER_BYTES: Final = 1 << 20

Fields = Mapping[str, str]


class ProviderAway(UnavailableError):
    """The provider does not answer, or not as a provider does. Nothing is known of anybody."""


class Answer(msgspec.Struct, frozen=True):
    """An answer of the provider: an object of JSON, empty for anything else."""

    status: int
    content: dict[str, Any]

    @property
    def error(self) -> str:
        """Return the error code of OAuth; empty without."""
        return str(self.content.get("error", ""))

    @property
    def detail(self) -> str:
        """Return what the provider says of its error."""
        return str(self.content.get("error_description", "") or self.error)[:300]


def check_address(url: str, what: str) -> str:
    """Return an address of a provider. Raises ValueError for one that anybody may listen to."""
    parts = urlsplit(url)
    is_safe = parts.scheme == "https" or (
        parts.scheme == "http" and is_loopback(parts.hostname or "")
    )
    if not is_safe or not parts.hostname:
        raise ValueError(f"expected an https address as {what}, found {url or 'none'}")
    return url


async def send_request(
    url: str,
    form: Fields | None = None,
    *,
    headers: Fields | None = None,
    tls: ssl.SSLContext | bool = True,
) -> Answer:
    """Get an address, or post a form to it. Raises ProviderAway.

    No redirect is followed: an address of the provider is what its document says.
    """
    import aiohttp  # most gateways have no provider

    method = "GET" if form is None else "POST"
    try:
        async with (
            within(TIMEOUT_SECONDS),
            aiohttp.ClientSession() as session,
            session.request(
                method,
                url,
                data=form,
                headers={"Accept": "application/json", **(headers or {})},
                allow_redirects=False,
                ssl=tls,
            ) as response,
        ):
            chunks = [chunk async for chunk in _first_bytes(response)]
            content, status = b"".join(chunks), response.status
    except (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError) as error:
        reason = str(error) or type(error).__name__
        raise ProviderAway(f"the provider does not answer at {url}: {reason}") from error
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
        raise ProviderAway(f"the provider answers {status} at {url}")
    return Answer(status, _object_in(content))


async def _first_bytes(response: "aiohttp.ClientResponse") -> AsyncIterator[bytes]:
    """Yield the answer's content. Raises ProviderAway for more than any provider says."""
    size = 0
    async for chunk in response.content.iter_chunked(1 << 16):
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise ProviderAway(f"the provider's answer has more than {MAX_ANSWER_BYTES} bytes")
        yield chunk


def _object_in(content: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}
