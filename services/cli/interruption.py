"""What Ctrl-C means to a command that has something to put in order first."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts() -> Iterator[asyncio.Event]:
    """Set by the first SIGINT or SIGTERM; the second one cancels the task that is in the block.

    Also where this process was started with SIGINT ignored, as a background job of a shell is.
    """
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()
    handled = (signal.SIGINT, signal.SIGTERM)
    task = asyncio.current_task()

    def on_signal() -> None:
        if interrupted.is_set() and task is not None:
            task.cancel()
        interrupted.set()

    for each in handled:
        loop.add_signal_handler(each, on_signal)
    try:
        yield interrupted
    finally:
        for each in handled:
            loop.remove_signal_handler(each)
