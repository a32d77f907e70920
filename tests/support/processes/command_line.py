"""`gpusteward` as a process that starts at once.

Importing takes a new interpreter half a second of a processor, most of what a short command costs.
Where its start is what is tested, `python -m services.cli` is started instead.
"""

import asyncio
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.fakes.gateway import StubGateway
from tests.support.paths import ROOT


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass(slots=True)
class CommandProcess:
    """A running command: what tests use of `asyncio.subprocess.Process`."""

    pid: int
    stdin: asyncio.WriteTransport | None
    stdout: asyncio.StreamReader | None
    stderr: asyncio.StreamReader | None
    _answers: asyncio.StreamReader
    _pipes: list[asyncio.BaseTransport]
    returncode: int | None = None

    async def wait(self) -> int:
        """Its exit code, negative for the signal that ended it. What it wrote and nobody read yet
        is dropped.
        """
        code = await self._ended()
        await self._close()
        return code

    async def communicate(self, text: bytes | None = None) -> tuple[bytes, bytes]:
        if self.stdin is not None:
            if text is not None:
                self.stdin.write(text)
            self.stdin.close()
        out, err, _ = await asyncio.gather(_rest(self.stdout), _rest(self.stderr), self._ended())
        await self._close()
        return out, err

    async def _ended(self) -> int:
        if self.returncode is None:
            self.returncode = int(await self._answers.readline())
        return self.returncode

    async def _close(self) -> None:
        for each in self._pipes:
            each.close()
        await asyncio.sleep(0)  # they are closed in the loop's next turn

    def send_signal(self, number: int) -> None:
        # It may have ended, and its answer not have come yet.
        with suppress(ProcessLookupError):
            if self.returncode is None:
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def start_command(
    *arguments: str,
    environment: Mapping[str, str],
    stdin: int = DEVNULL,
    stdout: int = PIPE,
    stderr: int = PIPE,
) -> CommandProcess:
    """The streams are descriptors, which stay the caller's, or PIPE or DEVNULL."""
    stdin_theirs, stdin_ours = _ends(stdin, is_read=True)
    stdout_theirs, stdout_ours = _ends(stdout)
    stderr_theirs, stderr_ours = _ends(stderr)
    answers_theirs, answers_ours = _ends(PIPE)
    command = {"arguments": arguments, "environment": dict(environment)}
    theirs = [stdin_theirs, stdout_theirs, stderr_theirs, answers_theirs]
    try:
        socket.send_fds(_server(), [json.dumps(command).encode()], theirs)
    finally:
        for each, given in zip(theirs, (stdin, stdout, stderr, PIPE), strict=True):
            if each != given:
                os.close(each)
    pipes: list[asyncio.BaseTransport] = []
    answers = await _reader(answers_ours, pipes)
    assert answers is not None
    return CommandProcess(
        pid=int(await answers.readline()),
        stdin=await _writer(stdin_ours, pipes),
        stdout=await _reader(stdout_ours, pipes),
        stderr=await _reader(stderr_ours, pipes),
        _answers=answers,
        _pipes=pipes,
    )


async def run_command(
    *arguments: str, environment: Mapping[str, str], text: str | None = None
) -> Ended:
    """One command to its end; `text` is its standard input."""
    stdin = PIPE if text is not None else DEVNULL
    process = await start_command(*arguments, environment=environment, stdin=stdin)
    try:
        out, err = await process.communicate(text.encode() if text is not None else None)
    except BaseException:
        process.kill()
        raise
    return Ended(await process.wait(), out.decode(), err.decode())


class Command:
    """Runs the command with the address of a gateway, most often of a stand-in."""

    def __init__(self, stub: StubGateway, url: str, data_dir: Path) -> None:
        self.stub = stub
        self.url = url
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "GPUSTEWARD_URL": url,
            "GPUSTEWARD_DATA_DIR": str(data_dir),
        }

    async def start(self, *arguments: str, stdin: int = DEVNULL) -> CommandProcess:
        return await start_command(*arguments, environment=self.environment, stdin=stdin)

    async def __call__(self, *arguments: str, text: str | None = None) -> Ended:
        return await run_command(*arguments, environment=self.environment, text=text)


@cache
def _server() -> socket.socket:
    """Started once, for as long as this process runs."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.processes.command_server", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
        )

    def stop() -> None:
        ours.close()
        server.wait()

    atexit.register(stop)
    return ours


def _ends(wanted: int, *, is_read: bool = False) -> tuple[int, int | None]:
    """The command's end of a stream and, of a pipe, ours."""
    if wanted == DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None
    if wanted != PIPE:
        return wanted, None
    reading, writing = os.pipe()
    return (reading, writing) if is_read else (writing, reading)


async def _reader(
    descriptor: int | None, pipes: list[asyncio.BaseTransport]
) -> asyncio.StreamReader | None:
    if descriptor is None:
        return None
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb")
    )
    pipes.append(transport)
    return reader


async def _writer(
    descriptor: int | None, pipes: list[asyncio.BaseTransport]
) -> asyncio.WriteTransport | None:
    if descriptor is None:
        return None
    transport, _ = await asyncio.get_running_loop().connect_write_pipe(
        asyncio.BaseProtocol, os.fdopen(descriptor, "wb")
    )
    pipes.append(transport)
    return transport


async def _rest(stream: asyncio.StreamReader | None) -> bytes:
    return await stream.read() if stream is not None else b""
