"""Runs a program of the host for what it prints, however it behaves."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

MAX_OUTPUT_BYTES: Final = 1 << 18
REAP_SECONDS: Final = 0.2


class Output(Struct, frozen=True, kw_only=True):
    """What it wrote, both streams in the order of writing.

    `exit_code` None: it did not start, did not end in time or wrote without end; `problem` says
    which.
    """

    text: str
    exit_code: int | None
    problem: str = ""

    @property
    def summary(self) -> str:
        """Its words and its end, for a sentence."""
        said = " ".join(self.text.split())[:160]
        how = self.problem or f"exit code {self.exit_code}"
        return f"{said} ({how})" if said else f"nothing said ({how})"


def run_program(
    arguments: Sequence[str], timeout_seconds: float, environment: Mapping[str, str] | None = None
) -> Output:
    """Never raises; whatever it started is killed when it does not end in time."""
    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as failure:
        return Output(text="", exit_code=None, problem=f"it does not start: {failure}")
    deadline = time.monotonic() + timeout_seconds
    written, problem = _read(process, deadline)
    if not problem:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            problem = "timeout"
    if problem == "timeout":
        problem = f"no end within {timeout_seconds:g} s"
    if problem:
        _kill(process)
    text = written.decode(errors="replace")
    return Output(text=text, exit_code=None if problem else process.returncode, problem=problem)


def _read(process: "subprocess.Popen[bytes]", deadline: float) -> tuple[bytes, str]:
    """What it wrote until it closed its output, and what went wrong until then."""
    written = bytearray()
    with process.stdout or contextlib.nullcontext() as stream, selectors.DefaultSelector() as ready:
        if stream is None:
            return b"", ""
        ready.register(stream, selectors.EVENT_READ)
        while True:
            if not ready.select(max(0.0, deadline - time.monotonic())):
                return bytes(written), "timeout"
            chunk = os.read(stream.fileno(), 1 << 16)
            if not chunk:
                return bytes(written), ""
            written += chunk
            if len(written) > MAX_OUTPUT_BYTES:
                return bytes(written[:MAX_OUTPUT_BYTES]), "it writes without end"


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    # Stuck in a driver it ends when the driver lets go of it; nobody waits for that.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(REAP_SECONDS)
