"""Runs a program of the host for what it prints, however it behaves, and leaves nothing of it."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import BinaryIO, Final

from msgspec import Struct

from shared.errors import StewardError
from shared.lifecycle import dying_with_parent
from shared.waiting import within

MAX_OUTPUT_BYTES: Final = 4 << 20
_CHUNK_BYTES: Final = 1 << 16
_REAP_SECONDS: Final = 1.0
_TRY_SECONDS: Final = 1.0
_SUMMARY_CHARACTERS: Final = 300


class CommandOutput(Struct, frozen=True, kw_only=True):
    """What a program wrote and how it ended; `stderr` is empty where it was merged into `stdout`.

    `failure`: it did not start, did not end in time or wrote too much. Then `exit_code` is
    None, and the texts are what it wrote until it was killed.
    """

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    failure: str = ""
    timed_out: bool = False

    @property
    def summary(self) -> str:
        """Return it on one line, for an error message."""
        text = " ".join(f"{self.stdout} {self.stderr}".split())[:_SUMMARY_CHARACTERS]
        return f"{text or 'no output'} ({self.failure or f'exit code {self.exit_code}'})"


async def run_command(
    arguments: Sequence[str],
    *,
    deadline_seconds: float,
    environment: Mapping[str, str] | None = None,
    merge_streams: bool = False,
    stdin: int | BinaryIO = DEVNULL,
) -> CommandOutput:
    """Run it to its end. Raises nothing but a cancellation; it and its children are killed then."""
    launcher, before_exec = _tie(arguments[0], environment)
    try:
        process = await asyncio.create_subprocess_exec(
            *launcher,
            *arguments,
            stdin=stdin,
            stdout=PIPE,
            stderr=STDOUT if merge_streams else PIPE,
            env=environment,
            # A group of its own: a wrapper script's children hold the pipes open, and die with it.
            start_new_session=True,
            preexec_fn=before_exec,
        )
    except (OSError, ValueError) as error:
        return CommandOutput(failure=f"it does not start: {error}")
    stdout, stderr = bytearray(), bytearray()
    failure, timed_out = "", False
    try:
        async with within(deadline_seconds):
            await _collect(process, stdout, stderr)
    except TimeoutError:
        failure, timed_out = f"no end within {deadline_seconds:g} s", True
        await _kill(process)
    except _OutputTooLongError:
        failure = "it writes without end"
        await _kill(process)
    except BaseException:
        await _kill(process)
        raise
    return CommandOutput(
        stdout=stdout.decode(errors="replace"),
        stderr=stderr.decode(errors="replace"),
        exit_code=None if failure else process.returncode,
        failure=failure,
        timed_out=timed_out,
    )


class _OutputTooLongError(StewardError):
    pass


def _tie(
    program: str, environment: Mapping[str, str] | None
) -> tuple[tuple[str, ...], Callable[[], None] | None]:
    """Return what starts the program so that the kernel kills it when this process ends: a command
    prefix, or a `preexec_fn`.

    With a `preexec_fn` Python forks, and a fork copies the page tables: that takes 15 ms of a
    process of 67 MB and 40 of one of 230, the other way 4 ms (docs/explanation/performance.md).
    """
    path = None if environment is None else environment.get("PATH")
    # A program that cannot start is told as such by Python alone.
    if (setpriv := _setpriv()) is None or shutil.which(program, path=path) is None:
        return (), dying_with_parent()
    # This process may have ended before the kernel was asked.
    unless_orphaned = ("/bin/sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid()))
    return (setpriv, "--pdeathsig", "KILL", *unless_orphaned), None


@cache
def _setpriv() -> str | None:
    """Find util-linux's `setpriv`: others of that name know no `--pdeathsig`."""
    program = shutil.which("setpriv")
    if program is None:
        return None
    try:
        completed = subprocess.run(
            [program, "--pdeathsig", "KILL", "/bin/sh", "-c", "exit 7"],
            capture_output=True,
            timeout=_TRY_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return program if completed.returncode == 7 else None


async def _collect(process: Process, stdout: bytearray, stderr: bytearray) -> None:
    readers = [
        asyncio.ensure_future(_read(process.stdout, stdout)),
        asyncio.ensure_future(_read(process.stderr, stderr)),
    ]
    try:
        await asyncio.gather(*readers)
    finally:
        for reader in readers:
            reader.cancel()
    await process.wait()


async def _read(stream: asyncio.StreamReader | None, text: bytearray) -> None:
    while stream is not None and (chunk := await stream.read(_CHUNK_BYTES)):
        text += chunk
        if len(text) > MAX_OUTPUT_BYTES:
            raise _OutputTooLongError


async def _kill(process: Process) -> None:
    """End the whole group: a child that holds the pipes may have outlived its parent. A
    cancellation is heeded when that is done: cut off, it would leave the pipes open.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    reaping, cancellation = asyncio.ensure_future(_reap(process)), None
    while not reaping.done():
        try:
            await asyncio.wait([reaping])
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation
    await reaping


async def _reap(process: Process) -> None:
    # Stuck inside a driver it ends when the driver lets go of it; the event loop reaps it then.
    with contextlib.suppress(TimeoutError):
        async with within(_REAP_SECONDS):
            for stream in (process.stdout, process.stderr):
                while stream is not None and await stream.read(_CHUNK_BYTES):
                    pass
            await process.wait()
