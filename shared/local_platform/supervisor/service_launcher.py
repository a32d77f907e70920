"""The supervisor's side of the process that starts services as its forks."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from shared.lifecycle import adopting_orphans
from shared.local_platform.supervisor.launcher_process import ROOM_BYTES, ROOM_VARIABLE, Launch
from shared.processes.child_process import ChildProcess, rotate_log
from shared.waiting import within

MODULE: Final = "shared.local_platform.supervisor.launcher_process"
IMPORT_SECONDS: Final = 60.0
LAUNCH_SECONDS: Final = 5.0

log = structlog.get_logger()


class ServiceLauncher:
    """A process that has imported `modules`, and of which services are forks as long as it runs.

    They are our children as if we had started them, and share its pages until they write to them.
    Whatever becomes of it, a service can be started without it. `environment` marks it as one of
    the platform's processes; it is asked for at the start, as it may be read from a disk that is
    full. Linux alone.
    """

    def __init__(
        self,
        modules: Sequence[str],
        environment: Callable[[], Mapping[str, str]],
        *,
        log_path: Path,
    ) -> None:
        self._modules = modules
        self._environment = environment
        self._log_path = log_path
        self._process: ChildProcess | None = None
        self._requests: socket.socket | None = None
        self._imported: asyncio.Task[bool] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start it, and let it import. Raises OSError."""
        self._requests, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other_end:
            self._process = ChildProcess.spawn(
                "launcher",
                [sys.executable, "-m", MODULE, str(other_end.fileno()), *self._modules],
                env={**self._environment(), ROOM_VARIABLE: " " * ROOM_BYTES},
                log_path=self._log_path,
                pass_descriptors=[other_end.fileno()],
            )
        self._requests.setblocking(False)
        self._imported = asyncio.create_task(self._await_imports(self._requests))

    async def stop(self) -> None:
        """End it. What it started lives on."""
        if self._imported is not None:
            self._imported.cancel()
        if self._process is not None:
            await self._process.stop(signal.SIGTERM, LAUNCH_SECONDS)
        if self._requests is not None:
            self._requests.close()
        self._process = self._requests = self._imported = None

    async def launch(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str], log_path: Path, cwd: Path
    ) -> ChildProcess | None:
        """Start `python -m MODULE` as a fork, once all is imported; None where it cannot."""
        if self._imported is None or not await asyncio.shield(self._imported):
            return None
        rotate_log(log_path)
        launch = Launch(argv=list(argv), environment=dict(env), directory=str(cwd))
        descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            return ChildProcess(name, _Fork(self._ask(launch, descriptor)))
        except (OSError, ValueError) as error:
            log.warning("launcher_lost", child=name, error=str(error))
            if self._process is not None:
                self._process.kill()
            self._imported = None
            return None
        finally:
            os.close(descriptor)

    def _ask(self, launch: Launch, log_descriptor: int) -> int:
        # Not awaited: cancelled in between, a process would be left of which nobody knows.
        if self._requests is None:
            raise ConnectionResetError("it was stopped")
        self._requests.settimeout(LAUNCH_SECONDS)
        with adopting_orphans():
            socket.send_fds(self._requests, [msgspec.json.encode(launch)], [log_descriptor])
            return int(self._requests.recv(32))

    async def _await_imports(self, requests: socket.socket) -> bool:
        try:
            async with within(IMPORT_SECONDS):
                return bool(await asyncio.get_running_loop().sock_recv(requests, 32))
        except OSError:  # of which a TimeoutError is one
            return False


class _Fork:
    """A child that another process made for us, in the part of Popen that is used of it."""

    returncode: int | None = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def send_signal(self, sent: signal.Signals) -> None:
        os.kill(self.pid, sent)
