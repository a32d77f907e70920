"""An event loop whose clock stands still while anything can run, and jumps to the next timer.

For code that waits only by the loop's own clock: hours pass in milliseconds, and always alike.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            if timeout is None:
                raise RuntimeError("nothing is left to wait for")
            self._jump(timeout)
        return found


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._seconds = 0.0
        super().__init__(_JumpingSelector(self._advance))

    def time(self) -> float:
        return self._seconds

    def _advance(self, seconds: float) -> None:
        self._seconds += seconds


def run_virtually(coroutine: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
