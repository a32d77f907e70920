"""One engine in a container: awaited, watched, ended for certain."""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import Any, Final

import docker
from docker.errors import APIError

from schemas.executor.attempts import Failure, FailureKind
from services.executor.domain.verdict import AttemptFailed, engine_exit, failure, is_port_taken
from services.executor.engines.engine import EngineCommand
from services.executor.host.own_thread import in_own_thread
from services.executor.host.processes import ProcessMark, WorkloadLabel
from services.executor.runtimes.docker.client import ContainerEngine, inspect
from services.executor.runtimes.docker.ending import ContainerEnding
from services.executor.runtimes.docker.logs import ContainerLogFollower
from services.executor.runtimes.readiness import LOG_LINES_READ, is_ready, readiness_probe
from services.executor.runtimes.runtime import SIGNALLED, LogSink, PortTaken, RuntimeUnavailable
from shared.waiting import wait_for

POLL_SECONDS: Final = 0.05
INSPECT_SECONDS: Final = 1.0
LAST_LINES_SECONDS: Final = 2.0
LAST_CHARACTERS: Final = 512 << 10
LAST_LINES: Final = 4000  # standard error may overtake what was written before it
# How a container ends that the engine stops when it is itself stopped or comes back.
STOPPED_BY_ENGINE: Final = frozenset({0, SIGNALLED + 9, SIGNALLED + 15})


@dataclass(slots=True, kw_only=True, eq=False)
class EngineContainer:
    """A started container. `stop` has to be called, whatever happened; it may be called again."""

    engine: ContainerEngine
    container_id: str
    label: WorkloadLabel
    command: EngineCommand
    log: LogSink
    port: int
    has_own_network: bool
    ends_when: str
    marks: tuple[ProcessMark, ...] = ()
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _follower: ContainerLogFollower = field(init=False)
    _following: "asyncio.Future[None]" = field(init=False)
    _was_away: bool = False
    _inspected_at: float = float("-inf")

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()

        def notify_change() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._changed.set)

        self._follower = ContainerLogFollower(
            engine=self.engine, container_id=self.container_id, log=self.log, on_end=notify_change
        )
        self._following = in_own_thread(self._follower.follow, "container_log")

    async def until_ready(self, timeout_seconds: float) -> str:
        """Wait as `RunningEngine.until_ready`.

        An open connection is no sign: the engine's proxy accepts it at once.
        """
        base_url = f"http://127.0.0.1:{self.port}"
        async with readiness_probe(self.command, self.log, timeout_seconds) as session:
            while not await is_ready(session, f"{base_url}{self.command.readiness_path}"):
                ended = await self._poll("before it was ready")
                if ended is not None:
                    self._fail(ended)
                await asyncio.sleep(POLL_SECONDS)
        return base_url

    async def until_ended(self) -> Failure:
        """Wait as `RunningEngine.until_ended`; a restart of Docker that the engine survives is not
        its end.
        """
        while True:
            ended = await self._poll(self.ends_when)
            if ended is not None:
                return ended
            await wait_for(self._changed, INSPECT_SECONDS)

    async def stop(self, grace_seconds: float) -> None:
        await ContainerEnding(
            engine=self.engine,
            container_id=self.container_id,
            label=self.label,
            marks=self.marks,
            grace_seconds=grace_seconds,
        ).run()
        await self._last_lines()
        self._follower.give_up()

    async def _poll(self, when: str) -> Failure | None:
        """Return why it has ended; None while it runs, and while Docker does not say."""
        now = time.monotonic()
        if not self._changed.is_set() and now - self._inspected_at < INSPECT_SECONDS:
            return None
        self._changed.clear()
        self._inspected_at = now
        try:
            container = await self.engine.call(lambda api: inspect(api, self.container_id))
        except (RuntimeUnavailable, APIError):
            self._was_away = True
            return None
        if container is not None and container["State"]["Running"]:
            return None
        text = await self._last_words()
        state = None if container is None else container["State"]
        return await asyncio.to_thread(self._failure, state, when, text)

    async def _last_words(self) -> str:
        """The end of what it wrote, by the engine: the log may be behind by what was much."""
        await self._last_lines()
        with contextlib.suppress(RuntimeUnavailable, APIError):
            return (await self.engine.call(self._tail, seconds=LAST_LINES_SECONDS))[
                -LAST_CHARACTERS:
            ]
        return self.log.tail(LOG_LINES_READ)

    def _tail(self, api: docker.APIClient) -> str:
        written = api.logs(self.container_id, tail=LAST_LINES).decode(errors="replace")
        return str(written)[-LAST_CHARACTERS:]

    def _failure(self, state: dict[str, Any] | None, when: str, text: str) -> Failure:
        engine = self.command.engine
        if state is None:
            return failure(
                FailureKind.ENGINE_EXITED,
                f"the container of {engine} was removed {when}, and not by this executor",
                log_text=text,
            )
        exit_code, oom_killed = int(state["ExitCode"]), bool(state.get("OOMKilled"))
        if self._was_away and exit_code in STOPPED_BY_ENGINE and not oom_killed:
            return failure(
                FailureKind.RUNTIME_UNAVAILABLE,
                f"Docker was restarted {when}, and has stopped {engine}",
                exit_code=exit_code,
                log_text=text,
                hint="with live-restore in /etc/docker/daemon.json containers outlive it",
            )
        by_signal = SIGNALLED < exit_code < SIGNALLED + 65
        return engine_exit(
            engine,
            SIGNALLED - exit_code if by_signal else exit_code,
            when,
            text,
            oom_killed=oom_killed,
        )

    def _fail(self, ended: Failure) -> None:
        # In a network of its own no other program can have the port.
        if not self.has_own_network and is_port_taken("\n".join(ended.log_tail)):
            raise PortTaken
        raise AttemptFailed(ended)

    async def _last_lines(self) -> None:
        """Wait a moment for what it wrote in the end."""
        await asyncio.wait({self._following}, timeout=LAST_LINES_SECONDS)
