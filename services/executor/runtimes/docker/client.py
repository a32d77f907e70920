"""The container engine, asked off the event loop; every answer comes within a deadline."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import docker
import requests
from docker.errors import APIError, DockerException, NotFound
from docker.utils import kwargs_from_env
from urllib3.exceptions import HTTPError

from services.executor.runtimes.docker.unix_socket import UnixAdapter
from services.executor.runtimes.runtime import RuntimeUnavailable
from shared.paths import DOCKER_SOCKET
from shared.waiting import within

T = TypeVar("T")

THREADS: Final = 16
QUICK_SECONDS: Final = 10.0
# What may have to unpack, mount or wait for the device driver.
SLOW_SECONDS: Final = 120.0
PROBE_SECONDS: Final = 2.0
# To ask which one the engine speaks.
ANY_VERSION: Final = "1.24"
_CONNECTION_ERRORS: Final = (DockerException, requests.RequestException, HTTPError, OSError)


class ContainerEngine:
    """One container engine. Each call makes a connection, so that it may restart in between.

    Calls raise RuntimeUnavailable when it does not answer, and the SDK's APIError when it refuses.
    """

    def __init__(self, docker_host: str = "") -> None:
        self._docker_host = docker_host
        self._version: str | None = None
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="docker")

    async def call(
        self, ask: Callable[[docker.APIClient], T], *, seconds: float = QUICK_SECONDS
    ) -> T:
        """Ask it in a thread. If this is cancelled, what was asked may still be done."""
        loop = asyncio.get_running_loop()
        try:
            async with within(seconds):
                return await loop.run_in_executor(self._pool, self._ask, ask, seconds)
        except TimeoutError:
            raise RuntimeUnavailable(f"Docker did not answer within {seconds:g} s") from None

    @contextmanager
    def connect(self, seconds: float | None) -> Iterator[docker.APIClient]:
        """A connection for a thread. Raises RuntimeUnavailable, also for what breaks it inside."""
        try:
            connection = self._connection()
        except (DockerException, ValueError) as error:
            raise RuntimeUnavailable(f"the way to Docker is not usable: {error}") from error
        try:
            _probe(connection["base_url"])
            with contextlib.closing(self._open(connection, seconds)) as api:
                yield api
        except APIError:
            raise
        except _CONNECTION_ERRORS as error:
            self._version = None
            raise RuntimeUnavailable(f"{connection['base_url']}: {_reason(error)}") from error

    def _ask(self, ask: Callable[[docker.APIClient], T], seconds: float) -> T:
        with self.connect(seconds) as api:
            return ask(api)

    def _open(self, connection: dict[str, Any], seconds: float | None) -> docker.APIClient:
        if self._version is None:
            with contextlib.closing(_client(connection, ANY_VERSION, QUICK_SECONDS)) as probe:
                self._version = str(probe.version(api_version=False)["ApiVersion"])
        return _client(connection, self._version, seconds)

    def _connection(self) -> dict[str, Any]:
        connection_kwargs: dict[str, Any] = {**kwargs_from_env()}
        if self._docker_host:
            connection_kwargs["base_url"] = self._docker_host
        connection_kwargs.setdefault("base_url", f"unix://{DOCKER_SOCKET}")
        return connection_kwargs


def ask_or_none(ask: Callable[[], T]) -> T | None:
    """Return the answer; None if the engine knows nothing of that name."""
    try:
        return ask()
    except NotFound:
        return None


def inspect(api: docker.APIClient, container_id: str) -> dict[str, Any] | None:
    """The container as the engine describes it; None if there is none."""
    return ask_or_none(lambda: dict(api.inspect_container(container_id)))


def text_of(error: APIError) -> str:
    """Return the engine's message, without the address of the request."""
    return str(error.explanation or error)


def _client(connection: Mapping[str, Any], version: str, seconds: float | None) -> docker.APIClient:
    timeout: Any = seconds  # None waits without end
    try:
        api = docker.APIClient(**connection, version=version, timeout=timeout)
    except ValueError as error:
        raise DockerException(f"this is no address: {error}") from error
    if (path := _socket_path(connection["base_url"])) is not None:
        api.mount("http+docker://", UnixAdapter(path, timeout))
    return api


def _probe(base_url: str) -> None:
    """Raises OSError without a listener on a socket of this host; it says more than the SDK's."""
    path = _socket_path(base_url)
    if path is None:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PROBE_SECONDS)
        probe.connect(path)


def _socket_path(base_url: str) -> str | None:
    scheme, _, path = base_url.partition("://")
    return "/" + path.lstrip("/") if scheme in {"unix", "http+unix"} else None


def _reason(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "nothing there; Docker is not installed, or not running"
    if isinstance(error, PermissionError):
        return "permission denied; the executor's user has to be in the group of that socket"
    if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        return "connection refused; Docker is not running"
    return str(error) or type(error).__name__
