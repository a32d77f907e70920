"""Starts children in stages, restarts those that end, stops all in reverse order."""

import asyncio
import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from shared.clock import utcnow
from shared.disk import is_full, reports_no_room, room_at
from shared.local_platform.supervisor.leftovers import MARK_VARIABLE, kill_marked
from shared.local_platform.supervisor.service import Child, ChildSpec, ServiceProcess
from shared.local_platform.supervisor.service_launcher import ServiceLauncher
from shared.paths import DataDirectory, write_atomically
from shared.processes.child_process import NotReady, UnusableSettings, describe_exit, rotate_log
from shared.waiting import cancel_and_wait, wait_for, within

LOG_CHECK_SECONDS: Final = 30.0
DISK_CHECK_SECONDS: Final = 0.25  # a disk that is full for less may go unseen
KILLED_TIMEOUT_SECONDS: Final = 3.0

log = structlog.get_logger()


class State(StrEnum):
    """Where a child is in its life."""

    WAITING = "waiting"  # for its first start, or for its next one after a failure
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"


class ChildState(Struct, frozen=True, kw_only=True):
    """What is known of a child; the state file is a list of these.

    `last_exit` is `exit 1`, `SIGKILL`, or why a start failed, in a sentence.
    """

    name: str
    state: State
    changed_at: datetime
    pid: int | None = None
    restarts: int = 0
    last_exit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long a child that ended waits for its next start.

    The delay doubles from `first_seconds` to `longest_seconds`, and begins anew after a life of
    `reset_after_seconds`. A child that fails its very first starts `start_attempts` times ends the
    supervisor: what never worked will not by waiting. Starts that a full disk prevents do not
    count: room comes back.
    """

    first_seconds: float = 0.2
    longest_seconds: float = 10.0
    reset_after_seconds: float = 30.0
    start_attempts: int = 3


@dataclass(slots=True, eq=False)
class _Supervised:
    child: Child
    first_ready: asyncio.Future[object]
    state: ChildState
    supervision: asyncio.Task[None] | None = None
    failed_starts: int = field(default=0)


class Supervisor:
    """Keeps children running from `run` until SIGTERM, SIGINT or `request_stop`.

    The children of one stage start together, once the stage before is ready. They are stopped one
    after the other, the last one first. A second request stops them all at once. `on_change` sees
    every state; `on_started` is called when all are ready, and after an OSError again, until it
    returns; `on_disk` is called with the message when the disk is full, and has room again.
    A `launcher` runs until all are ready: who is started again later shares nothing with it.

    A full disk ends nothing. What cannot be written to it is written when there is room.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[Child | ChildSpec]],
        directory: DataDirectory,
        *,
        backoff: Backoff | None = None,
        launcher: ServiceLauncher | None = None,
        on_change: Callable[[ChildState], None] | None = None,
        on_started: Callable[[], None] | None = None,
        on_disk: Callable[[str], None] | None = None,
    ) -> None:
        self._directory = directory
        self._marks = marks_of(directory)
        self._launcher = launcher
        self._stages = [[self._as_child(spec) for spec in stage] for stage in stages]
        self._backoff = backoff or Backoff()
        self._on_change = on_change
        self._on_started = on_started
        self._on_disk = on_disk
        self._is_disk_full = False
        self._room_back = asyncio.Event()  # set for a moment, for who waits for its next start
        self._are_states_written = True
        self._is_start_announced = True
        self._supervised: list[_Supervised] = []
        self._stop = asyncio.Event()
        self._stop_at_once = asyncio.Event()
        self._failed: BaseException | None = None

    @property
    def states(self) -> list[ChildState]:
        """Return all children in the order of their start."""
        return [child.state for child in self._supervised]

    def request_stop(self) -> None:
        """Stop in order; a second time, at once."""
        if self._stop.is_set():
            self._stop_at_once.set()
        self._stop.set()

    async def run(self) -> None:
        """Start everything and restart what ends, until a stop is requested.

        On return everything has ended. Raises the error of a child that did not start at first.
        """
        loop = asyncio.get_running_loop()
        for handled in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(handled, self.request_stop)
        housekeeping = (
            asyncio.create_task(self._rotate_logs()),
            asyncio.create_task(self._watch_disk()),
        )
        try:
            await self._end_leftovers("leftovers_killed")
            self._adopt_children(loop)
            self._start_launcher()
            await self._start_stages()
            await self._stop_launcher()
            await self._stop.wait()
        finally:
            await cancel_and_wait(*housekeeping)
            await self._stop_launcher()
            await self._stop_all()
            for handled in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(handled)
        if self._failed is not None:
            raise self._failed

    def _as_child(self, spec: Child | ChildSpec) -> Child:
        if isinstance(spec, ChildSpec):
            return ServiceProcess(spec, self._directory, self._marks, self._launcher)
        return spec

    def _adopt_children(self, loop: asyncio.AbstractEventLoop) -> None:
        for child in (child for stage in self._stages for child in stage):
            unborn = ChildState(name=child.name, state=State.WAITING, changed_at=utcnow())
            self._supervised.append(_Supervised(child, loop.create_future(), unborn))
        self._write_states()

    def _start_launcher(self) -> None:
        """Start it, or go on without it, as where the disk is full."""
        if self._launcher is not None:
            try:
                self._launcher.start()
            except OSError as error:
                log.warning("launcher_not_started", error=str(error))

    async def _stop_launcher(self) -> None:
        if self._launcher is not None:
            await self._launcher.stop()

    async def _start_stages(self) -> None:
        remaining = list(self._supervised)
        for stage in self._stages:
            starting, remaining = remaining[: len(stage)], remaining[len(stage) :]
            for child in starting:
                child.supervision = asyncio.create_task(
                    self._supervise(child), name=f"supervise {child.state.name}"
                )
                child.supervision.add_done_callback(self._record_failure)
            if not await self._all_ready(starting):
                return
        log.info("platform_started", children=[child.state.name for child in self._supervised])
        self._announce_start()

    def _announce_start(self) -> None:
        if self._on_started is None:
            return
        try:
            self._on_started()
        except OSError as error:
            log.warning("start_unannounced", error=str(error))
            self._is_start_announced = False
        else:
            self._is_start_announced = True

    async def _all_ready(self, starting: Sequence[_Supervised]) -> bool:
        """False if a stop was requested, or a child gave up, before all were ready."""
        stop_asked: asyncio.Future[object] = asyncio.ensure_future(self._stop.wait())
        waiting: set[asyncio.Future[object]] = {child.first_ready for child in starting}
        try:
            while waiting and not stop_asked.done():
                done, _ = await asyncio.wait(
                    {*waiting, stop_asked}, return_when=asyncio.FIRST_COMPLETED
                )
                waiting -= done
            return not stop_asked.done()
        finally:
            await cancel_and_wait(stop_asked)

    def _record_failure(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._failed is None:
            self._failed = error
        self._stop.set()

    async def _supervise(self, child: _Supervised) -> None:
        """Start the child whenever it does not run. Ends by being cancelled, or by raising."""
        delay_seconds = self._backoff.first_seconds
        while True:
            started_at = time.monotonic()
            last_exit = await self._run_once(child)
            if time.monotonic() - started_at >= self._backoff.reset_after_seconds:
                delay_seconds = self._backoff.first_seconds
            log.warning(
                "child_ended",
                child=child.state.name,
                last_exit=last_exit,
                restart_in_seconds=delay_seconds,
            )
            self._change(child, State.WAITING, pid=None, last_exit=last_exit)
            if await wait_for(self._room_back, delay_seconds):
                delay_seconds = self._backoff.first_seconds
            delay_seconds = min(2 * delay_seconds, self._backoff.longest_seconds)
            child.state = msgspec.structs.replace(child.state, restarts=child.state.restarts + 1)

    async def _run_once(self, child: _Supervised) -> str:
        """Run the child once from start to end; return how it ended."""
        self._change(child, State.STARTING)
        try:
            await child.child.start()
        except (NotReady, OSError) as error:
            await child.child.stop()
            child.failed_starts += not self._lacks_room(error)
            is_final = isinstance(error, UnusableSettings)
            attempts = 1 if is_final else self._backoff.start_attempts
            if not child.first_ready.done() and child.failed_starts >= attempts:
                raise
            return str(error)
        self._change(child, State.READY, pid=child.child.pid)
        if not child.first_ready.done():
            child.first_ready.set_result(None)
        return describe_exit(await child.child.wait())

    async def _stop_all(self) -> None:
        in_order = asyncio.create_task(self._stop_in_order())
        at_once = asyncio.create_task(self._stop_at_once.wait())
        try:
            await asyncio.wait({in_order, at_once}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(in_order, at_once)
            if not in_order.cancelled() and (error := in_order.exception()):
                log.error("stop_in_order_failed", exc_info=error)
            await self._kill_remaining()
            await self._end_leftovers("orphans_killed")

    async def _stop_in_order(self) -> None:
        for child in reversed(self._supervised):
            await self._end_supervision(child)
            if child.child.pid is not None:
                self._change(child, State.STOPPING)
                await child.child.stop()
            self._change(child, State.STOPPED, pid=None)

    async def _kill_remaining(self) -> None:
        remaining = [child for child in self._supervised if child.state.state is not State.STOPPED]
        for child in remaining:
            await self._end_supervision(child)
            child.child.kill()
        for child in remaining:
            if child.child.pid is not None:
                try:
                    async with within(KILLED_TIMEOUT_SECONDS):
                        await child.child.wait()
                except TimeoutError:
                    log.warning("child_outlived_kill", child=child.state.name)
            self._change(child, State.STOPPED, pid=None)

    async def _end_supervision(self, child: _Supervised) -> None:
        """Stop supervising: the child is not started again."""
        if child.supervision is not None:
            await cancel_and_wait(child.supervision)

    async def _end_leftovers(self, event: str) -> None:
        if met := await kill_marked(self._marks[MARK_VARIABLE]):
            log.warning(event, pids=met)

    async def _rotate_logs(self) -> None:
        while True:
            await asyncio.sleep(LOG_CHECK_SECONDS)
            for child in self._supervised:
                rotate_log(self._directory.log_path(child.state.name))

    async def _watch_disk(self) -> None:
        while True:
            await asyncio.sleep(DISK_CHECK_SECONDS)
            if (full := is_full(self._directory.root)) != self._is_disk_full:
                self._is_disk_full = full
                self._report_disk()
                if not full:
                    self._room_back.set()
                    self._room_back.clear()
                    await self._restart_stuck()
            if not self._are_states_written:
                self._write_states()
            if not self._is_start_announced:
                self._announce_start()

    def _report_disk(self) -> None:
        room = room_at(self._directory.root)
        if room.is_full:
            log.error("disk_full", room=str(room))
        else:
            log.info("disk_has_room", room=str(room))
        if self._on_disk is not None:
            full = f"the disk is full, nothing new is started: {room}"
            self._on_disk(full if room.is_full else f"the disk has room again: {room}")

    async def _restart_stuck(self) -> None:
        """End what does not write again by itself; it is started anew as after any end."""
        for child in self._supervised:
            if child.child.restarts_with_room and child.state.state is State.READY:
                log.info("restarted_with_room", child=child.state.name)
                await child.child.stop()

    def _lacks_room(self, error: NotReady | OSError) -> bool:
        """Return True if a start failed because the disk is full; a server writes that into its
        log.
        """
        return (
            reports_no_room(error)
            or os.strerror(errno.ENOSPC).lower() in str(error).lower()
            or is_full(self._directory.root)
        )

    def _change(self, child: _Supervised, state: State, **changes: int | str | None) -> None:
        child.state = msgspec.structs.replace(
            child.state, state=state, changed_at=utcnow(), **changes
        )
        self._write_states()
        log.info("child_changed", child=child.state.name, state=state.value, pid=child.state.pid)
        if self._on_change is not None:
            self._on_change(child.state)

    def _write_states(self) -> None:
        try:
            write_atomically(self._directory.state_path, msgspec.json.encode(self.states))
        except OSError as error:
            if self._are_states_written:
                log.warning("process_states_not_written", error=str(error))
            self._are_states_written = False
        else:
            self._are_states_written = True


def marks_of(directory: DataDirectory) -> dict[str, str]:
    """The environment by which every descendant of this directory's platform is recognised."""
    return {MARK_VARIABLE: str(directory.root.resolve())}


def read_states(directory: DataDirectory) -> list[ChildState]:
    """The state file's content; empty if there is none."""
    try:
        return msgspec.json.decode(directory.state_path.read_bytes(), type=list[ChildState])
    except FileNotFoundError:
        return []
