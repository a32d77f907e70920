"""A telemetry agent that also watches its own event loop: a line of JSON every second."""

import asyncio
import json
import sys
import time
from typing import Final

from services.telemetry.app import create_service

STEP_SECONDS: Final = 0.01


async def watch_loop() -> None:
    """Tell how late the worst of a second's steps was, and how much the thread computed in one.

    Lateness has the host's other processes in it, computing has not.
    """
    loop = asyncio.get_running_loop()
    while True:
        late = computed = 0.0
        until = loop.time() + 1.0
        while loop.time() < until:
            due_at, cpu_before = loop.time() + STEP_SECONDS, time.thread_time()
            await asyncio.sleep(STEP_SECONDS)
            late = max(late, loop.time() - due_at)
            computed = max(computed, time.thread_time() - cpu_before)
        sys.stdout.write(json.dumps({"late_seconds": late, "computed_seconds": computed}) + "\n")
        sys.stdout.flush()


async def main() -> None:
    """Run until killed."""
    async with create_service().running():
        await watch_loop()


if __name__ == "__main__":
    asyncio.run(main())
