"""A scheduler as a process of its own, to be stopped, resumed and killed."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from shared.ids import new_id
from shared.lifecycle import READY_FILE_VARIABLE
from shared.testing import eventually
from tests.support.paths import ROOT


@dataclass(slots=True)
class SchedulerProcess:
    """A running `python -m services.scheduler`."""

    process: Process

    def kill(self) -> None:
        """SIGKILL: nothing is given up, nothing published."""
        self.process.kill()

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and whatever it believes."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def scheduler_process(
    nats_url: str, postgres_dsn: str, directory: Path, **settings: object
) -> AsyncIterator[SchedulerProcess]:
    """A scheduler, ready; its end guaranteed. Its log lies in `directory`."""
    ready = directory / f"ready-{new_id()}"
    with (directory / f"{ready.name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.scheduler",
            cwd=ROOT,
            stdin=DEVNULL,
            stderr=log,
            env={
                **os.environ,
                "GPUSTEWARD_NATS_URL": nats_url,
                "GPUSTEWARD_POSTGRES_DSN": postgres_dsn,
                READY_FILE_VARIABLE: str(ready),
                **{f"GPUSTEWARD_SCHEDULER_{k.upper()}": str(v) for k, v in settings.items()},
            },
        )
    try:
        await eventually(ready.exists, what="a ready scheduler")
        yield SchedulerProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
