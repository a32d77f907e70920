"""Waiting and cancelling where asyncio of Python 3.11 may lose a cancellation, and taking turns."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

CANCEL_AGAIN_SECONDS: Final = 0.5
ITEMS_PER_TURN: Final = 50

T = TypeVar("T")


def heed_cancellation() -> None:
    """Raise CancelledError if this task was cancelled and something it awaited lost that.

    asyncio.wait_for does, which nats-py is full of, when its result comes together with the
    cancellation. Drop with Python 3.11.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


@asynccontextmanager
async def within(seconds: float | None) -> AsyncIterator[None]:
    """Raises TimeoutError where the body takes longer; None is without end.

    asyncio.timeout takes a cancellation that was pending when it was entered, as one by a signal
    may be, for that of its own end where the two come together: always, if its time is up already.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("expected to wait in a task")
    cancellations = task.cancelling()
    await asyncio.sleep(0)  # what is pending is raised here
    timeout = asyncio.timeout(None)
    try:
        async with timeout:
            if task.cancelling() != cancellations:  # by a signal since then
                await asyncio.sleep(0)
            if seconds is not None:
                timeout.reschedule(asyncio.get_running_loop().time() + seconds)
            yield
    except asyncio.CancelledError as error:
        # Python 3.11.2 (Debian 12) takes it for a cancellation where one was heeded before.
        if timeout.expired() and task.cancelling() == cancellations:
            raise TimeoutError from error
        raise


async def take_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield items, and let others run before every 50 of them: all at once would have the
    statements of another task's transaction wait for the last.
    """
    for number, item in enumerate(items):
        if number % ITEMS_PER_TURN == 0:
            await asyncio.sleep(0)
        yield item


async def wait_for(event: asyncio.Event, seconds: float | None) -> bool:
    """Return True if the event was set in time; None waits without end.

    asyncio.wait_for, until Python 3.12, forgets a cancellation that comes together with the event.
    """
    try:
        async with within(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def cancel_and_wait(
    *tasks: asyncio.Future[Any], again_seconds: float = CANCEL_AGAIN_SECONDS
) -> None:
    """Cancel tasks and wait until they have ended; what they raise stays with them.

    Cancelled again while they run, because asyncio.wait_for of Python 3.11, which nats-py uses,
    forgets a cancellation that comes together with its result. Once is enough from 3.12 on.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=again_seconds)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # marks it as retrieved, or asyncio logs that it never was
