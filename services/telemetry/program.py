"""Runs a vendor's program for one answer, and leaves nothing of it behind."""

import asyncio
import contextlib
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from typing import Final

from msgspec import Struct

from services.telemetry.ports import ProbeHungError, SourceFailedError
from shared.lifecycle import dying_with_parent

MAX_OUTPUT_BYTES: Final = 4 << 20
_CHUNK_BYTES: Final = 1 << 16
_REAP_SECONDS: Final = 1.0


class Output(Struct, frozen=True):
    """What a program wrote and how it ended."""

    stdout: str
    stderr: str
    exit_code: int

    @property
    def summary(self) -> str:
        """Its words on one line, for an error message."""
        said = " ".join(f"{self.stdout} {self.stderr}".split())[:300] or "nothing"
        return f"{said} (exit code {self.exit_code})"


class Patience:
    """How long a run may take: the deadline, or twice the fastest run so far if that is more.

    A host that loads its driver for every run is slow always, and not hung. At first, when a driver
    may be loaded for good, it is `at_first_seconds`.
    """

    def __init__(self, deadline_seconds: float, *, at_first_seconds: float) -> None:
        self._deadline_seconds = deadline_seconds
        self._fastest_seconds = at_first_seconds
        self.seconds = at_first_seconds

    def took(self, seconds: float) -> None:
        """A run that read the devices took so long."""
        self._fastest_seconds = min(self._fastest_seconds, seconds)

    def settle(self) -> None:
        """From now on runs are compared with what was seen."""
        self.seconds = max(self._deadline_seconds, 2 * self._fastest_seconds)


def is_installed(path: str) -> bool:
    """Whether there is such a program, on PATH or at this place."""
    return shutil.which(path) is not None


async def run_program(path: str, *arguments: str, deadline_seconds: float) -> Output:
    """Run it to its end.

    Raises SourceFailedError if it does not start or writes more than 4 MiB, ProbeHungError after
    the deadline; it and whatever it started are killed then.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            *arguments,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            # A group of its own: a wrapper script's children hold the pipes open, and die with it.
            start_new_session=True,
            preexec_fn=dying_with_parent(),
        )
    except OSError as error:
        raise SourceFailedError(f"{path} does not start: {error}") from error
    try:
        async with asyncio.timeout(deadline_seconds):
            return await _output(process, path)
    except TimeoutError as error:
        await _kill(process)
        raise ProbeHungError(
            f"expected {path} to end within {deadline_seconds:g} s, it did not"
        ) from error
    except BaseException:
        await _kill(process)
        raise


async def _output(process: Process, path: str) -> Output:
    readers = [
        asyncio.ensure_future(_read_bounded(stream, path))
        for stream in (process.stdout, process.stderr)
    ]
    try:
        stdout, stderr = await asyncio.gather(*readers)
    finally:
        for reader in readers:
            reader.cancel()
    return Output(stdout, stderr, await process.wait())


async def _read_bounded(stream: asyncio.StreamReader | None, path: str) -> str:
    parts = bytearray()
    while stream is not None and (chunk := await stream.read(_CHUNK_BYTES)):
        parts += chunk
        if len(parts) > MAX_OUTPUT_BYTES:
            raise SourceFailedError(f"{path} writes without end")
    return parts.decode(errors="replace")


async def _kill(process: Process) -> None:
    """End the whole group: a child that holds the pipes may have outlived its parent."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    # Stuck inside the driver it dies when the driver lets go of it; the event loop reaps it then.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REAP_SECONDS):
            for stream in (process.stdout, process.stderr):
                while stream is not None and await stream.read(_CHUNK_BYTES):
                    pass
            await process.wait()
