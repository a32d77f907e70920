"""A command that tests fork does as one in a new interpreter does."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from schemas.errors import ErrorCode
from tests.support.fakes.gateway import stub_gateway
from tests.support.paths import ROOT
from tests.support.processes.command_line import Command, Ended

pytestmark = pytest.mark.long


async def in_new_interpreter(command: Command, *arguments: str, text: str) -> Ended:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.cli", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=command.environment,
    )
    out, err = await process.communicate(text.encode())
    return Ended(await process.wait(), out.decode(), err.decode())


@pytest.mark.parametrize("arguments", [("gpus", "--wide"), ("submit", "-")])
async def test_it_reads_prints_and_ends_the_same(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    async with stub_gateway() as (stub, url):
        stub.refusal = ErrorCode.BAD_REQUEST if arguments[0] == "submit" else None
        command = Command(stub, url, tmp_path)

        forked = await command(*arguments, text='{"task_name": "é"}')
        started = await in_new_interpreter(command, *arguments, text='{"task_name": "é"}')

    assert forked == started
    half = len(stub.calls) // 2
    assert stub.calls[:half] == stub.calls[half:] != []


async def test_forked_command_has_own_descriptors_and_signal(tmp_path: Path) -> None:
    async with stub_gateway() as (stub, url):
        command = Command(stub, url, tmp_path)
        # Of the command itself: what it starts inherits none.
        count = ("exec", "--gpus", "1", "--", "sh", "-c", "ls /proc/$PPID/fd | wc -l")
        forked = await command(*count)
        started = await in_new_interpreter(command, *count, text="")
        process = await command.start("exec", "--gpus", "1", "--", "sleep", "60")
        process.kill()
        code = await process.wait()

    assert 0 < int(forked.out) < int(started.out) + 4  # connections to the gateway come and go
    assert code == -signal.SIGKILL
