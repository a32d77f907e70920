"""Ending tasks for certain."""

import asyncio
from typing import Any, Final

CANCEL_AGAIN_SECONDS: Final = 0.5


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended; what they raise stays with them.

    Asked again, because `asyncio.wait_for` of Python 3.11, which nats-py uses, forgets a
    cancellation that comes together with its result. Once is enough from Python 3.12 on.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_SECONDS)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # looked at, or asyncio complains that nobody did
