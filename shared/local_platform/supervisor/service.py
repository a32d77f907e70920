"""What the supervisor restarts: anything that starts, ends and can be stopped."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from shared.lifecycle import READY_FILE_VARIABLE, read_ready_pid
from shared.local_platform.managed_process import ManagedProcess
from shared.local_platform.supervisor.service_launcher import ServiceLauncher
from shared.paths import DataDirectory
from shared.processes.child_process import (
    POLL_SECONDS,
    ChildProcess,
    NotReady,
    UnusableSettings,
    describe_exit,
)
from shared.waiting import cancel_and_wait

Environment = Mapping[str, str]


class Child(Protocol):
    """A process that can be started again and again: an embedded server or a service."""

    @property
    def name(self) -> str: ...

    @property
    def pid(self) -> int | None: ...

    @property
    def restarts_with_room(self) -> bool:
        """True if a full disk makes the child stop writing until it is restarted."""

    async def start(self) -> object:
        """Start it and wait until it is ready. Raises NotReady or OSError."""

    async def wait(self) -> int:
        """Wait until it ends and return its return code."""

    async def stop(self) -> None:
        """End it, gently first. Does nothing if it does not run."""

    def kill(self) -> None:
        """End it at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """A service's process.

    `env` is the whole environment; a callable is called at every start, for addresses that are
    known only then. The service links its ready file by `shared.lifecycle.notify_ready`.
    """

    name: str
    argv: Sequence[str]
    env: Environment | Callable[[], Environment] = field(default_factory=dict)
    ready_timeout_seconds: float = 30.0
    stop_timeout_seconds: float = 10.0


class ServiceProcess(ManagedProcess):
    """Runs a ChildSpec in the data directory, its output in the log of its name.

    With a `launcher`, whose specs are all `python -m MODULE`, as a fork of it while it runs.
    """

    def __init__(
        self,
        spec: ChildSpec,
        directory: DataDirectory,
        marks: Environment,
        launcher: ServiceLauncher | None = None,
    ) -> None:
        self.spec = spec
        self._launcher = launcher
        self._directory = directory
        self._marks = marks
        self.name = spec.name
        self.log_path = directory.log_path(spec.name)
        self.stop_timeout_seconds = spec.stop_timeout_seconds

    async def start(self) -> None:
        ready_path = self._directory.ready_path(self.name)
        ready_path.unlink(missing_ok=True)
        env = self.spec.env() if callable(self.spec.env) else self.spec.env
        child = await self._spawn({**env, **self._marks, READY_FILE_VARIABLE: str(ready_path)})
        seconds = self.spec.ready_timeout_seconds
        await self._until_ready(child, self._ready(child, ready_path), seconds, "was not ready")

    async def _spawn(self, env: Environment) -> ChildProcess:
        name, argv, log_path, cwd = self.name, self.spec.argv, self.log_path, self._directory.root
        if self._launcher is not None:
            fork = await self._launcher.launch(name, argv, env=env, log_path=log_path, cwd=cwd)
            if fork is not None:
                return fork
        return ChildProcess.spawn(name, argv, env=env, log_path=log_path, cwd=cwd)

    async def _ready(self, child: ChildProcess, ready_path: Path) -> None:
        ended = asyncio.create_task(child.wait())
        ready = asyncio.ensure_future(self._await_ready(child, ready_path))
        try:
            await asyncio.wait({ended, ready}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                code = ended.result()
                kind = UnusableSettings if code == os.EX_CONFIG else NotReady
                how = f"ended ({describe_exit(code)}) before it was ready"
                raise kind(self.name, how, self.log_path)
            ready.result()
        finally:
            await cancel_and_wait(ended, ready)

    async def _await_ready(self, child: ChildProcess, ready_path: Path) -> None:
        while read_ready_pid(ready_path) != child.pid:  # noqa: ASYNC110  # a file has no event
            await asyncio.sleep(POLL_SECONDS)
