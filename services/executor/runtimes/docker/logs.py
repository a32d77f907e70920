"""What a container writes, followed into its attempt's log through restarts of the engine."""

import contextlib
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import requests
from docker.errors import APIError, NotFound
from urllib3.exceptions import HTTPError

from services.executor.runtimes.docker.client import QUICK_SECONDS, ContainerEngine
from services.executor.runtimes.log_position import LogPosition
from services.executor.runtimes.runtime import LogSink, RuntimeUnavailable
from shared.errors import StewardError
from shared.logging import log as diagnostics

RETRY_SECONDS: Final = 0.2
# There is no such container, and it is just being removed.
GONE: Final = frozenset({404, 409})
# Of each piece: the stream that it was written to, and its length.
_HEADER: Final = struct.Struct(">BxxxL")


class ContainerGone(StewardError):
    """The container is no more."""


@dataclass(slots=True, kw_only=True)
class ContainerLogFollower:
    """Follows one container until it has ended and all of its log is there, or it is gone.

    To be run in a thread of its own. A stream that ends says nothing: it does so when the container
    stops and when the engine does, so each time the container is inspected. `on_end` is called at
    each end.
    """

    engine: ContainerEngine
    container_id: str
    log: LogSink
    on_end: Callable[[], None]
    _position: LogPosition = field(default_factory=LogPosition)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> None:
        try:
            while not self._is_over.is_set():
                try:
                    self._read(follow=True)
                    self.on_end()
                    if not self._runs():
                        # The stream may have ended with the engine, before the last lines.
                        self._read(follow=False)
                        return
                except (ContainerGone, NotFound):
                    return
                except (APIError, RuntimeUnavailable) as error:
                    self.on_end()
                    diagnostics.debug("container_log_broken_off", error=str(error))
                self._is_over.wait(RETRY_SECONDS)
        finally:
            self.on_end()

    def give_up(self) -> None:
        self._is_over.set()

    def _read(self, *, follow: bool) -> None:
        """Raises ContainerGone and RuntimeUnavailable. A stream that is torn just ends."""
        parameters = {"stdout": 1, "stderr": 1, "timestamps": 1, "follow": int(follow)}
        since = self._position.begin()
        if since is not None:
            parameters["since"] = since
        # Without a deadline: a container may be silent for as long as it likes.
        with self.engine.connect(None if follow else QUICK_SECONDS) as api:
            path = f"/v{api.api_version}/containers/{self.container_id}/logs"
            # The SDK's own asks twice and forgets the first answer if the second fails.
            with contextlib.closing(
                api.get(f"{api.base_url}{path}", params=parameters, stream=True, timeout=None)
            ) as response:
                if response.status_code in GONE:
                    raise ContainerGone
                if response.status_code != requests.codes.ok:
                    raise RuntimeUnavailable(f"the engine answered {response.status_code}")
                for piece in _pieces(response.raw):
                    if self._is_over.is_set():
                        return
                    if new := self._position.admit(piece):
                        self.log.append(new)

    def _runs(self) -> bool:
        with self.engine.connect(QUICK_SECONDS) as api:
            return bool(api.inspect_container(self.container_id)["State"]["Running"])


def _pieces(stream: Any) -> Iterator[bytes]:
    """Yield what was written, piece by piece, without an incomplete piece, which comes again."""
    try:
        while len(header := stream.read(_HEADER.size)) == _HEADER.size:
            length = _HEADER.unpack(header)[1]
            if len(piece := stream.read(length)) < length:
                return
            yield piece
    except (HTTPError, OSError, ValueError) as error:
        diagnostics.debug("container_log_torn", error=repr(error))
