"""Images: pulled unless they are there, once for all attempts that wait for one."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import docker
import requests
from docker.auth import get_config_header, resolve_repository_name
from docker.errors import APIError
from docker.types import CancellableStream
from urllib3.exceptions import ReadTimeoutError

from schemas.executor.attempts import FailureKind
from services.executor.domain.verdict import AttemptFailed, engine_refusal
from services.executor.host.own_thread import in_own_thread
from services.executor.runtimes.docker.client import (
    QUICK_SECONDS,
    ContainerEngine,
    ask_or_none,
    text_of,
)
from services.executor.runtimes.docker.pull_progress import PullProgress, PullRefused
from services.executor.runtimes.runtime import RuntimeUnavailable
from shared.logging import log
from shared.waiting import within

RETRY_SECONDS: Final = 0.5
# How long the engine may be away, as it is while it restarts.
AWAY_SECONDS: Final = 30.0
REPORT_SECONDS: Final = 0.25
# Without a word from the engine; nothing else ends the thread of a pull that was given up.
SILENCE_SECONDS: Final = 60.0

OnProgress = Callable[[float, str], None]


class Images:
    """The images of one engine."""

    def __init__(self, engine: ContainerEngine, timeout_seconds: float) -> None:
        self._engine = engine
        self._timeout_seconds = timeout_seconds
        self._pulls: dict[str, _Pull] = {}

    async def is_there(self, reference: str) -> bool:
        """Raises RuntimeUnavailable or APIError."""
        return await self._engine.call(partial(_is_there, reference))

    async def have(self, reference: str, on_progress: OnProgress) -> None:
        """Return once the image is there. Raises AttemptFailed."""
        pull = self._pulls.get(reference)
        if pull is None:
            pull = self._pulls[reference] = _Pull(self._engine, reference)
            pull.task = asyncio.create_task(pull.run(self._timeout_seconds), name="pull_image")
            pull.task.add_done_callback(lambda _: self._forget(pull))
        pull.listeners.append(on_progress)
        try:
            await asyncio.shield(pull.task)
        finally:
            pull.listeners.remove(on_progress)
            if not pull.listeners:
                # Another attempt begins anew instead of joining what is being broken off.
                self._forget(pull)
                pull.break_off()
                pull.task.cancel()

    def _forget(self, pull: "_Pull") -> None:
        if self._pulls.get(pull.reference) is pull:
            del self._pulls[pull.reference]


@dataclass(slots=True, eq=False)
class _Pull:
    engine: ContainerEngine
    reference: str
    listeners: list[OnProgress] = field(default_factory=list)
    task: "asyncio.Task[None]" = field(init=False)
    _progress: PullProgress = field(default_factory=PullProgress)
    _stream: "CancellableStream[bytes] | None" = None
    _is_broken_off: threading.Event = field(default_factory=threading.Event)
    _reported_at: float = 0.0
    _later: asyncio.TimerHandle | None = None

    async def run(self, timeout_seconds: float) -> None:
        try:
            async with within(timeout_seconds):
                await self._until_there()
        except TimeoutError:
            message = f"expected {self.reference} to be pulled within {timeout_seconds:g} s"
            raise AttemptFailed.of(FailureKind.IMAGE_PULL_FAILED, message) from None
        finally:
            self.break_off()

    def break_off(self) -> None:
        """The engine stops pulling; what it has stays with it for the next time."""
        self._is_broken_off.set()
        stream = self._stream
        if stream is not None:
            with contextlib.suppress(Exception):  # its thread may have closed it meanwhile
                stream.close()

    async def _until_there(self) -> None:
        away_since: float | None = None
        while True:
            try:
                if await self.engine.call(partial(_is_there, self.reference)):
                    return
                await in_own_thread(self._pull_once(), f"pull {self.reference}")
                # A stream that ended in silence may have ended with the engine.
                away_since = None
            except (APIError, PullRefused) as error:
                text = text_of(error) if isinstance(error, APIError) else str(error)
                raise engine_refusal(
                    text,
                    f"{self.reference} could not be pulled",
                    otherwise=FailureKind.IMAGE_PULL_FAILED,
                ) from error
            except RuntimeUnavailable as error:
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > AWAY_SECONDS:
                    message = f"{self.reference} could not be looked for: {error}"
                    raise AttemptFailed.of(FailureKind.RUNTIME_UNAVAILABLE, message) from error
            await asyncio.sleep(RETRY_SECONDS)

    def _pull_once(self) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def report() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._report)

        def pull() -> None:
            with self.engine.connect(None) as api:
                try:
                    self._follow(api, report)
                except requests.RequestException as error:
                    # A registry that stalls: asked again, the engine goes on with the pull.
                    if not _is_silence(error):
                        raise

        return pull

    def _follow(self, api: docker.APIClient, report: Callable[[], None]) -> None:
        with contextlib.closing(_open(api, self.reference)) as response:
            if response.status_code >= requests.codes.bad_request:
                raise PullRefused(_message(response))
            self._stream = CancellableStream(response.iter_lines(), response)
            for line in self._stream:
                if self._is_broken_off.is_set():
                    return
                if line and self._progress.feed(json.loads(line)):
                    report()

    def _report(self) -> None:
        now = time.monotonic()
        wait_seconds = self._reported_at + REPORT_SECONDS - now
        if wait_seconds > 0 and self._progress.fraction < 1:
            # The last of several is reported all the same.
            if self._later is None:
                loop = asyncio.get_running_loop()
                self._later = loop.call_later(wait_seconds, self._report_later)
            return
        self._reported_at = now
        for listener in tuple(self.listeners):
            try:
                listener(self._progress.fraction, self._progress.sentence)
            except Exception:  # noqa: BLE001  # one listener's fault is not the pull's
                log.exception("pull_listener_failed", image=self.reference)

    def _report_later(self) -> None:
        self._later = None
        self._report()


def _is_there(reference: str, api: docker.APIClient) -> bool:
    inspect: Any = api.inspect_image
    return ask_or_none(lambda: inspect(reference)) is not None


def _open(api: docker.APIClient, reference: str) -> requests.Response:
    """Start a pull as the SDK does, but return the response, so that the pull can be aborted."""
    repository, _, tag = reference.rpartition(":")
    registry, _ = resolve_repository_name(repository)
    header = get_config_header(api, registry)
    return api.post(
        f"{api.base_url}/v{api.api_version}/images/create",
        params={"fromImage": repository, "tag": tag},
        headers={"X-Registry-Auth": header} if header else {},
        stream=True,
        timeout=(QUICK_SECONDS, SILENCE_SECONDS),
    )


def _is_silence(error: requests.RequestException) -> bool:
    cause = error.args[0] if error.args else None
    return isinstance(error, requests.Timeout) or isinstance(cause, ReadTimeoutError)


def _message(response: requests.Response) -> str:
    try:
        content: Any = response.json()
        return str(content["message"])
    except (ValueError, KeyError, TypeError):
        return f"the engine answered {response.status_code}"
