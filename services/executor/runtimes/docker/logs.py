"""What a container writes, followed into its attempt's log through restarts of the engine."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import docker
from docker.errors import APIError, NotFound

from services.executor.runtimes.docker.client import QUICK_SECONDS, Docker
from services.executor.runtimes.docker.log_position import LogPosition
from services.executor.runtimes.runtime import LogSink, RuntimeUnavailable
from shared.logging import log as diagnostics

AGAIN_SECONDS: Final = 0.2


@dataclass(slots=True, kw_only=True)
class LogFollower:
    """Follows one container until it has ended and all of its log is there, or it is gone.

    To be run in a thread of its own. A stream that ends says nothing: it does so when the container
    stops and when the engine does, so each time the container is looked at. `on_end` is told of
    each end.
    """

    engine: Docker
    container_id: str
    log: LogSink
    on_end: Callable[[], None]
    _position: LogPosition = field(default_factory=LogPosition)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> None:
        """Return once nothing follows."""
        try:
            while not self._is_over.is_set():
                try:
                    self._read(follow=True)
                    self.on_end()
                    if not self._runs():
                        # The stream may have ended with the engine, before the last lines.
                        self._read(follow=False)
                        return
                except NotFound:
                    return
                except (APIError, RuntimeUnavailable) as error:
                    self.on_end()
                    diagnostics.debug("container_log_broken_off", error=str(error))
                time.sleep(AGAIN_SECONDS)
        finally:
            self.on_end()

    def give_up(self) -> None:
        """Follow no further than the stream that is open."""
        self._is_over.set()

    def _read(self, *, follow: bool) -> None:
        since = self._position.begin()
        # Without a deadline: a container may be silent for as long as it likes.
        with self.engine.connected(None if follow else QUICK_SECONDS) as api:
            try:
                for piece in api.logs(
                    self.container_id, stream=True, follow=follow, timestamps=True, since=since
                ):
                    if new := self._position.admit(piece):
                        self.log.append(new)
            except (APIError, OSError):
                raise
            except Exception as error:  # noqa: BLE001  # a torn stream fails the SDK anywhere
                diagnostics.debug("container_log_torn", error=repr(error))

    def _runs(self) -> bool:
        def inspect(api: docker.APIClient) -> bool:
            return bool(api.inspect_container(self.container_id)["State"]["Running"])

        with self.engine.connected(QUICK_SECONDS) as api:
            return inspect(api)
