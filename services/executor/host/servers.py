"""Servers that run already: which may be asked from this host, and what they answer."""

import asyncio
import socket
import time
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from msgspec import to_builtins

from schemas.errors import ErrorCode
from schemas.executor.servers import AskServer, ListServedModels, ServedModels, ServerAnswer
from schemas.task.endpoint import URL_FORM, is_server_url
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.tools.adapter import ServerUnreachable
from shared.datasets.hosts import is_metadata
from shared.errors import RefusedError
from shared.waiting import within

HOSTS_SETTING: Final = "GPUSTEWARD_EXECUTOR_ENDPOINT_HOSTS"
RESOLVE_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Servers:
    """Answers for people who try a server before they measure it; nothing of it is kept."""

    hosts: frozenset[str] = frozenset()

    async def list_models(self, query: ListServedModels) -> ServedModels:
        """Return the models that the server lists. Raises RefusedError."""
        await refuse_host(query.url, self.hosts)
        try:
            async with ChatServer(
                base_url=base_of(query.url), model_name="", api_key=query.api_key
            ) as server:
                return ServedModels(models=tuple(await server.list_models()))
        except ServerUnreachable as error:
            raise RefusedError(ErrorCode.UNAVAILABLE, str(error), path="$.url") from error

    async def ask(self, query: AskServer) -> ServerAnswer:
        """Return the server's answer to a conversation. Raises RefusedError."""
        await refuse_host(query.url, self.hosts)
        messages = [to_builtins(message) for message in query.messages]
        began_at = time.monotonic()
        try:
            async with ChatServer(
                base_url=base_of(query.url), model_name=query.model, api_key=query.api_key
            ) as server:
                completion = await server.complete(messages, query.max_tokens, ANSWER_SECONDS, {})
        except ServerUnreachable as error:
            raise RefusedError(ErrorCode.UNAVAILABLE, str(error), path="$.url") from error
        usage = completion.usage
        return ServerAnswer(
            text=completion.text,
            seconds=time.monotonic() - began_at,
            output_tokens=None if usage is None else usage.completion_tokens,
        )


def base_of(url: str) -> str:
    """Return the address before `/v1`."""
    return url.rstrip("/").removesuffix("/v1")


async def refuse_host(url: str, hosts: frozenset[str]) -> None:
    """Raises RefusedError for a host that the operator does not allow, that is not to be found, or
    that is a cloud's metadata service.
    """
    if not is_server_url(url):
        raise _refusal(f"expected {URL_FORM}, got {url!r}")
    parts = urlsplit(url)
    host = parts.hostname or ""
    if hosts and host not in hosts and f"{host}:{parts.port}" not in hosts:
        raise _refusal(
            f"servers at {host} are not allowed: an operator of this node allows a host by "
            f"{HOSTS_SETTING}={host}"
        )
    loop = asyncio.get_running_loop()
    try:
        async with within(RESOLVE_SECONDS):
            places = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError) as error:  # not every name can be looked up
        raise _refusal(f"expected a host that can be found, got {host!r}: {error}") from error
    address = next((str(place[0]) for *_, place in places if is_metadata(str(place[0]))), None)
    if address is not None:
        raise _refusal(
            f"{host} is at {address}, a link-local address such as of a cloud's metadata service: "
            "no server of models is asked there"
        )


def _refusal(message: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path="$.url")
