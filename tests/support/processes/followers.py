"""Every command that waits or follows, interrupted while its reader is slow or reads nothing.

Against a stand-in for the gateway, so that nothing but the command itself is interrupted.
"""

import asyncio
import fcntl
import os
import random
import signal
import struct
import sys
import termios
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec
from aiohttp import web
from msgspec.structs import replace

from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.orchestrator.views import AttemptView, TaskView
from schemas.scheduler.reservations import ReservationState
from schemas.telemetry.monitoring import MonitoringView
from services.executor.logs.engine_log import EngineLog
from shared.clock import utcnow
from shared.ids import new_id
from shared.paths import DataDirectory, Endpoint
from shared.testing import eventually
from tests.support.fakes.gateway import StubGateway
from tests.support.http_server import serving
from tests.support.interruption import pending_signals
from tests.support.paths import ROOT
from tests.support.processes.command_line import CommandProcess, start_command
from tests.support.worlds.gateway_views import make_experiment, make_task

PIPE_BYTES: Final = 50_000  # of 16 pages: a line goes into the next one where it does not fit
TIMEOUT_SECONDS: Final = 10.0  # until an interrupted command counts as one that hangs
PYTHON_SECONDS: Final = 0.06  # the interpreter's own start, before any line of ours
START_SECONDS: Final = 5.0  # what has not used so much of a processor by then waits
EXPERIMENTS: Final = 2_000  # a line for each fills the pipe


@dataclass(frozen=True, slots=True)
class Follower:
    """A command; `calls` is what it has asked for once it waits.

    `presses` of Ctrl-C: the first one of `run` cancels the task, and waits for its end.
    """

    arguments: tuple[str, ...]
    calls: str
    fills_pipe: bool = False
    presses: int = 1
    codes: tuple[int, ...] = (130,)


FOLLOWERS: Final = {
    "logs": Follower(("logs", "{experiment}", "--all", "-f"), "/logs?", fills_pipe=True),
    "logs of nothing yet": Follower(("logs", "{experiment}", "--attempt", "7", "-f"), "/logs?"),
    "run": Follower(("run", "{file}"), "/experiments?", fills_pipe=True, presses=2),
    "demo": Follower(
        ("demo", "--data-dir", "{data_dir}"), "/experiments?", fills_pipe=True, presses=2
    ),
    "cancel": Follower(("cancel", "{task}", "--yes"), "/cancel"),
    "exec": Follower(("exec", "--gpus", "1", "--", "yes"), "/renew", fills_pipe=True),
    "exec queued": Follower(("exec", "--gpus", "1", "--wait", "60", "--", "yes"), "wait_seconds"),
    "reserve": Follower(("reserve", "--gpus", "1", "--wait", "60"), "wait_seconds"),
    "availability": Follower(("availability", "--gpus", "1", "--wait", "60"), "/availability"),
    "monitor": Follower(("monitor", "alpha", "--seconds", "60"), "/monitoring", codes=(0, 130)),
    "bench": Follower(("bench", "{url}", "--model", "m", "--tool", "builtin"), "/v1/chat"),
}


@dataclass(frozen=True, slots=True)
class Interrupted:
    """How one command took it; `seconds` from the last Ctrl-C to its end."""

    name: str
    is_read: bool
    seconds: float
    code: int
    complaint: str

    @property
    def is_well(self) -> bool:
        return (
            self.seconds <= 2.0
            and self.code in FOLLOWERS[self.name].codes
            and "Traceback" not in self.complaint
        )


async def interrupted(
    name: str, directory: Path, dice: random.Random, *, is_read: bool = False
) -> Interrupted:
    """Start a follower, let it wait a while for its reader, slow or at rest, interrupt it."""
    follower = FOLLOWERS[name]
    async with _gateway(directory) as (gateway, places):
        if "queued" in name or name == "reserve":
            gateway.outcome = ReservationState.QUEUED
        gateway.ends_cancelled = name != "cancel"
        ours, theirs = os.pipe()
        process = await start_command(
            *_arguments(name, places),
            environment=_environment(name, directory, places),
            stdout=theirs,
        )
        os.close(theirs)
        complaint = asyncio.create_task(process.communicate())
        reading = asyncio.create_task(_read_slowly(ours)) if is_read else None
        try:
            await eventually(
                lambda: (
                    gateway.was_asked(follower.calls)
                    and (is_read or not follower.fills_pipe or unread_bytes(ours) > PIPE_BYTES)
                ),
                within_seconds=60,
                what=f"{name} to wait for its reader",
            )
            await asyncio.sleep(dice.uniform(0.0, 0.3))
            for _ in range(follower.presses - 1):
                process.send_signal(signal.SIGINT)
                # One that is still to be taken, by a process that does not run, would be the same.
                await eventually(
                    lambda: (
                        process.returncode is not None
                        or signal.SIGINT not in pending_signals(process.pid)
                    )
                )
                await asyncio.sleep(dice.uniform(0.05, 0.5))
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
            seconds = await _seconds_until_ended(process, complaint)
        finally:
            if process.returncode is None:
                process.kill()
            if reading is not None:
                reading.cancel()
            # Before its last words are read: what `exec` runs shares them, and may fill the pipe.
            os.close(ours)
            _, written = await complaint
    return Interrupted(name, is_read, seconds, process.returncode or 0, written.decode())


async def interrupted_early(name: str, directory: Path, dice: random.Random) -> Interrupted:
    """Start a follower and interrupt it at any moment of its start, or soon after it."""
    async with _gateway(directory) as (gateway, places):
        gateway.outcome = ReservationState.QUEUED
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.cli", *_arguments(name, places)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env=_environment(name, directory, places),
        )
        complaint = asyncio.create_task(process.communicate())
        try:
            await _until_ran(process.pid, dice.uniform(PYTHON_SECONDS, 1.0))
            process.send_signal(signal.SIGINT)
            seconds = await _seconds_until_ended(process, complaint)
        finally:
            if process.returncode is None:
                process.kill()
            _, written = await complaint
    return Interrupted(name, True, seconds, process.returncode or 0, written.decode())


def _scheduled(pid: int) -> tuple[float, float]:
    """Seconds for which it ran, and for which others ran in its place."""
    ran, queued, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(ran) / 1e9, int(queued) / 1e9


async def _until_ran(pid: int, seconds: float) -> None:
    with suppress(AssertionError):
        await eventually(
            lambda: _scheduled(pid)[0] >= seconds,
            within_seconds=START_SECONDS,
            every_seconds=0.005,
        )


async def _seconds_until_ended(
    process: asyncio.subprocess.Process | CommandProcess,
    end: "asyncio.Task[tuple[bytes, bytes]]",
) -> float:
    """Without the time that it, or who watches it here, only waited for a processor."""
    began = time.monotonic()
    pids = (process.pid, os.getpid())
    before = dict.fromkeys(pids, 0.0)
    waited = dict.fromkeys(pids, 0.0)
    for pid in pids:
        with suppress(OSError, ValueError):
            before[pid] = _scheduled(pid)[1]
    while not end.done() and time.monotonic() - began - max(waited.values()) < TIMEOUT_SECONDS:
        await asyncio.wait({end}, timeout=0.02)
        for pid in pids:
            with suppress(OSError, ValueError):
                waited[pid] = _scheduled(pid)[1] - before[pid]
    return max(0.0, time.monotonic() - began - max(waited.values()))


def _arguments(name: str, places: Mapping[str, str]) -> list[str]:
    return [each.format(**places) for each in FOLLOWERS[name].arguments]


def _environment(name: str, directory: Path, places: Mapping[str, str]) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "GPUSTEWARD_DATA_DIR": str(directory),
        **({} if name == "demo" else {"GPUSTEWARD_URL": places["url"]}),
    }


def summary(all_interrupted: Sequence[Interrupted]) -> dict[str, float]:
    """Counts, and how long the slowest took."""
    return {
        "interruptions": len(all_interrupted),
        "above_2_s": sum(each.seconds > 2.0 for each in all_interrupted),
        "violations": sum(not each.is_well for each in all_interrupted),
        "slowest_s": round(max(each.seconds for each in all_interrupted), 2),
    }


@dataclass
class _Gateway(StubGateway):
    """Also takes tasks and monitorings, holds questions about what is queued, and never answers
    as an engine.
    """

    ends_cancelled: bool = True
    never: asyncio.Event = field(default_factory=asyncio.Event)

    def was_asked(self, part: str) -> bool:
        return any(part in path for _, path, _ in self.calls)

    def app(self) -> web.Application:
        application = super().app()
        application.add_routes(
            [
                web.post("/api/v1/tasks", self._submit),
                web.post("/api/v1/tasks/{id}/cancel", self._cancel),
                web.post("/api/v1/nodes/{id}/monitoring", self._monitoring),
                web.delete("/api/v1/nodes/{id}/monitoring/{monitoring}", self._monitoring),
                web.get("/v1/models", self._models),
                web.post("/v1/chat/completions", self._hang),
            ]
        )
        return application

    async def _submit(self, _: web.Request) -> web.Response:
        return web.json_response({"task_id": str(self.tasks[0].task_id)}, status=201)

    async def _cancel(self, _: web.Request) -> web.Response:
        if self.ends_cancelled:
            self.tasks = [replace(self.tasks[0], state=TaskState.CANCELLED)]
            with suppress(ConnectionError):
                await self.tell("orchestrator.task_cancelled")
        return web.Response(
            body=msgspec.json.encode(self.tasks[0]), content_type="application/json"
        )

    async def _monitoring(self, request: web.Request) -> web.Response:
        view = MonitoringView(
            node_id=request.match_info["id"],
            monitoring_id=new_id(),
            running=True,
            started_at=utcnow(),
            monitoring_duration_seconds=1.0,
            sample_count=1,
            missed_count=0,
        )
        return web.Response(body=msgspec.json.encode(view), content_type="application/json")

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]})

    async def _hang(self, _: web.Request) -> web.Response:
        await self.never.wait()
        return web.Response()

    async def _reservation(self, request: web.Request) -> web.Response:
        if self.outcome is ReservationState.QUEUED:
            await self.never.wait()
        return await super()._reservation(request)


@asynccontextmanager
async def _gateway(directory: Path) -> AsyncIterator[tuple[_Gateway, dict[str, str]]]:
    log = EngineLog(directory / "engine.log", 1 << 20)
    log.append(b"".join(b"line %d of an engine that writes much\n" % n for n in range(10_000)))
    attempt = AttemptView(
        attempt_id=UUID(int=1), attempt_number=1, reservation_id=new_id(), executor_id="alpha"
    )
    task: TaskView = make_task()
    experiments = [
        make_experiment(n + 1, task_id=task.task_id, state=ExperimentState.RUNNING)
        for n in range(EXPERIMENTS)
    ]
    experiments[0] = replace(experiments[0], attempts=(attempt,))
    gateway = _Gateway(tasks=[task], experiments=experiments, logs={1: log})
    task_file = directory / "task.json"
    task_file.write_text("{}")
    async with serving(gateway.app()) as url:
        place = DataDirectory(directory / "data")
        place.prepare()
        place.write_endpoint(Endpoint(pid=os.getpid(), api_url=url))
        yield (
            gateway,
            {
                "url": url,
                "task": str(task.task_id),
                "experiment": str(experiments[0].experiment_id),
                "file": str(task_file),
                "data_dir": str(place.root),
            },
        )


def unread_bytes(descriptor: int) -> int:
    """What a pipe holds."""
    buffer = fcntl.ioctl(descriptor, termios.FIONREAD, struct.pack("i", 0))
    return int(struct.unpack("i", buffer)[0])


async def _read_slowly(descriptor: int) -> None:
    while True:
        if unread_bytes(descriptor):
            os.read(descriptor, 2_000)
        await asyncio.sleep(0.02)
