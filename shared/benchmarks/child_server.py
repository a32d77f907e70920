"""A server of ours in a process of its own, for measurements of what sends the load."""

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from shared.benchmarks.tools.adapter import BenchmarkFailed
from shared.paths import SOURCE_ROOT
from shared.waiting import within

START_SECONDS: Final = 60.0
_ADDRESS: Final = re.compile(r"http://\S+")


@asynccontextmanager
async def run_server(title: str, module: str, *arguments: str) -> AsyncIterator[str]:
    """Run a module that prints its address, yield the address, and kill the process after it.

    Raises BenchmarkFailed, which names the server by its title.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=SOURCE_ROOT,
    )
    try:
        try:
            async with within(START_SECONDS):
                url = await _read_address(process)
        except TimeoutError as error:
            raise BenchmarkFailed(f"{title} did not start in time") from error
        if url is None:
            raise BenchmarkFailed(f"{title} did not start")
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _read_address(process: asyncio.subprocess.Process) -> str | None:
    while process.stdout is not None and (line := await process.stdout.readline()):
        if match := _ADDRESS.search(line.decode(errors="replace")):
            return match[0]
    return None
