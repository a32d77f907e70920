"""A platform that runs for as long as a command needs it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from schemas.errors import ErrorCode
from services.cli.failures import CommandFailed
from services.cli.options import Target
from shared.client.discovery import Address
from shared.client.errors import PlatformUnreachable
from shared.client.http import StewardClient
from shared.client.reaching import unreachable
from shared.local_platform.supervisor.supervisor import State, read_states
from shared.paths import DataDirectory, python_path
from shared.processes.child_process import ChildProcess, last_lines, rotate_log
from shared.waiting import within

PREFIX: Final = "gpusteward: "
POLL_SECONDS: Final = 0.1
START_TIMEOUT_SECONDS: Final = 120.0
STOP_TIMEOUT_SECONDS: Final = 75.0


@dataclass(frozen=True, slots=True)
class Running:
    """Where the platform answers; `is_ours` if this command started it."""

    address: Address
    is_ours: bool


async def answering(target: Target) -> Address | None:
    """The platform's address if one answers; None if none is known on this machine.

    Raises PlatformUnreachable if an address was given and nothing answers there.
    """
    try:
        address = target.address()
    except PlatformUnreachable:
        return None
    async with StewardClient(address, timeout_seconds=5.0) as client:
        if await client.is_alive():
            return address
    if target.is_explicit:
        raise unreachable(address.url, ConnectionRefusedError())
    return None


@asynccontextmanager
async def platform(
    target: Target, *, simulate: bool, keep: bool = False, port: int | None = None
) -> AsyncIterator[Running]:
    """The platform that answers, else one that is started and, unless kept, stopped at the end.

    Raises CommandFailed for a `port` where the one that answers is not.
    """
    address = await answering(target)
    if address is not None:
        if port is not None and urlsplit(address.url).port != port:
            raise CommandFailed(
                ErrorCode.CONFLICT,
                f"expected none or one on port {port}, found a platform of this directory at"
                f" {address.url}: stop it, or leave --port out",
            )
        yield Running(address, is_ours=False)
        return
    arguments = [
        "up",
        "--data-dir",
        str(target.directory.root),
        *(["--simulate"] if simulate else []),
        *(["--port", str(port)] if port is not None else []),
    ]
    if keep:
        process = _start_detached(target.directory, arguments)
        yield Running(await _until_started(target, process), is_ours=False)
        return
    child = _start(target.directory, arguments)
    try:
        yield Running(await _until_started(target, child), is_ours=True)
    finally:
        await child.stop(signal.SIGTERM, STOP_TIMEOUT_SECONDS)


def _log_path(directory: DataDirectory) -> Path:
    return directory.log_path("up")


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "services.cli", *arguments]


def _start(directory: DataDirectory, arguments: Sequence[str]) -> ChildProcess:
    """Start the platform in a session of its own, so that Ctrl-C reaches this command alone.

    It gets SIGTERM if this process dies.
    """
    directory.prepare()
    return ChildProcess.spawn(
        "platform",
        _command(arguments),
        env={**os.environ, "PYTHONPATH": python_path()},
        log_path=_log_path(directory),
        death_signal=signal.SIGTERM,
    )


def _start_detached(directory: DataDirectory, arguments: Sequence[str]) -> ChildProcess:
    """The same, but it lives on when this command ends."""
    directory.prepare()
    rotate_log(_log_path(directory))
    with _log_path(directory).open("ab") as output:
        process = subprocess.Popen(
            _command(arguments),
            env={**os.environ, "PYTHONPATH": python_path()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return ChildProcess("platform", process)


async def _until_started(target: Target, child: ChildProcess) -> Address:
    announced: set[str] = set()
    try:
        async with within(START_TIMEOUT_SECONDS):
            while True:
                if child.returncode is not None:
                    raise _not_started(target.directory)
                announced |= _announce_ready(target.directory, child.pid, announced)
                endpoint = target.directory.read_endpoint()
                if endpoint is not None and endpoint.pid == child.pid and endpoint.api_url:
                    click.echo(f"platform started at {endpoint.api_url}", err=True)
                    if target.directory.read_admin_token() is not None:
                        path = target.directory.admin_token_path
                        click.echo(f"its API asks for a token, yours is in {path}", err=True)
                    return target.at(endpoint.api_url)
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        await child.stop(signal.SIGTERM, STOP_TIMEOUT_SECONDS)
        raise _not_started(target.directory) from None


def _announce_ready(directory: DataDirectory, pid: int, announced: set[str]) -> set[str]:
    """Say which processes have become ready. The state file of an earlier life is not read."""
    if not directory.state_path.exists():
        return set()
    states = [state for state in read_states(directory) if state.pid and state.pid > 0]
    ready = {
        state.name for state in states if state.state is State.READY and _is_of(state.pid, pid)
    }
    for name in sorted(ready - announced):
        click.echo(f"{name} is ready", err=True)
    return ready


def _is_of(pid: int | None, parent_pid: int) -> bool:
    """Return whether a process is a child of the platform just started."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[1] == str(parent_pid)


def _not_started(directory: DataDirectory) -> CommandFailed:
    """Build the error, with what the platform's process printed last."""
    path = _log_path(directory)
    printed = [line for line in last_lines(path, 50).splitlines() if line.startswith(PREFIX)]
    why = printed[-1].removeprefix(PREFIX) if printed else f"see {path}"
    return CommandFailed(ErrorCode.UNAVAILABLE, f"the platform did not start: {why}")
