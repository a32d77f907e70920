"""What Ctrl-C means to a command that has something to put in order first."""

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

T = TypeVar("T")

TURNS_TO_HANDLER: Final = 3  # a loop sees that a signal came, reads which one, calls its handler


@contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt here, as it does in Python by default."""
    previous_handler = signal.getsignal(signal.SIGINT)
    if previous_handler is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)


def run(work: Coroutine[Any, Any, T]) -> T:
    """asyncio.run; Ctrl-C cancels `work`, a second one raises KeyboardInterrupt at once.

    KeyboardInterrupt is also what is raised where `work` ends as cancelled.
    """
    interrupt = {signal.SIGINT}

    async def run_unblocked() -> T:
        # A handler of the loop's own, for whatever signal, has every signal wake the loop: one that
        # comes as it goes to sleep would not.
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, lambda: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupt)
        return await work

    # Held back until it finds a task to cancel.
    signal.pthread_sigmask(signal.SIG_BLOCK, interrupt)
    try:
        with keyboard_interrupts():
            return asyncio.run(run_unblocked())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupt)


@asynccontextmanager
async def interrupts() -> AsyncIterator[asyncio.Event]:
    """Set by the first SIGINT or SIGTERM; the second one cancels the task that is in the block.

    Also where this process was started with SIGINT ignored, as a background job of a shell is.
    After the block SIGINT raises KeyboardInterrupt at once.
    """
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()
    task = asyncio.current_task()

    def on_signal() -> None:
        if interrupted.is_set() and task is not None:
            task.cancel()
        interrupted.set()

    default_handlers: dict[int, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }
    for signal_number in default_handlers:
        loop.add_signal_handler(
            signal_number, on_signal
        )  # which counts those that come in one long call
    try:
        yield interrupted
    finally:
        for signal_number, handler in default_handlers.items():
            signal.signal(signal_number, handler)
        try:
            for _ in range(TURNS_TO_HANDLER):  # what came in the block's last step is not dropped
                await asyncio.sleep(0)
        finally:
            for signal_number in default_handlers:
                loop.remove_signal_handler(signal_number)
