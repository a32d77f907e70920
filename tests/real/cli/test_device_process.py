"""A process on reserved devices, as several parts of a command wait for it."""

import asyncio
import os
import signal

from services.cli.leased_process.process import DeviceProcess


async def test_all_waiters_get_the_exit_code() -> None:
    process = DeviceProcess(["/bin/sleep", "60"], dict(os.environ))
    waiting = [asyncio.create_task(process.wait()) for _ in range(3)]
    await asyncio.sleep(0)

    stopped = await process.stop(5.0)

    assert stopped == 128 + signal.SIGTERM
    assert await asyncio.gather(*waiting) == [stopped] * 3
    assert await process.wait() == stopped
