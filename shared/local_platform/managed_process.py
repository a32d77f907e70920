"""What an embedded server and a supervised service have in common: one child process at a time."""

import signal
from collections.abc import Awaitable
from pathlib import Path
from typing import Self

from shared.processes.child_process import ChildProcess, NotReady
from shared.waiting import within


class ManagedProcess:
    """Started, awaited, stopped and started again; as a context manager, for a block."""

    name: str
    log_path: Path
    restarts_with_room = False
    stop_signal = signal.SIGTERM
    stop_timeout_seconds = 15.0
    _child: ChildProcess | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    async def start(self) -> object:
        """Start it and wait until it is ready. Raises NotReady or OSError."""
        raise NotImplementedError

    async def wait(self) -> int:
        """Wait until it ends, however that comes; return its return code."""
        if self._child is None:
            raise RuntimeError(f"{self.name} was not started")
        return await self._child.wait()

    async def stop(self) -> None:
        """End it, gently first. Does nothing if it does not run."""
        if self._child is not None:
            await self._child.stop(self.stop_signal, self.stop_timeout_seconds)
            self._child = None

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._child is not None:
            self._child.kill()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _until_ready(
        self, child: ChildProcess, ready: Awaitable[object], seconds: float, silent: str
    ) -> None:
        """Await `ready`; killed, with NotReady, where that takes longer."""
        self._child = child
        try:
            async with within(seconds):
                await ready
        except TimeoutError:
            child.kill()
            reason = f"{silent} within {seconds:g} s"
            raise NotReady(self.name, reason, self.log_path) from None
