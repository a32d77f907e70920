"""Loops that belong to the process: when one fails, the process ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from shared.errors import UnavailableError
from shared.logging import log
from shared.waiting import cancel_and_wait

FIRST_RETRY_SECONDS: Final = 0.1
LAST_RETRY_SECONDS: Final = 1.0
CANCEL_LOOP_AGAIN_SECONDS: Final = 3.0  # a loop may have something to put in order


class Background:
    """Owns the process's loops. A loop that raises ends its owner with that error.

    `UnavailableError` alone is survived: the outside is down, and the loop starts anew after a
    growing pause.
    """

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def own_loops(self) -> AsyncIterator[None]:
        """The time in which loops may run; at its end they are cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    yield
                finally:
                    self._group = None
                    await self.stop()
        except BaseExceptionGroup as errors:
            # One error is the rule; its own type is what callers and tests expect.
            if len(errors.exceptions) == 1:
                raise errors.exceptions[0] from None
            raise

    def start(self, name: str, loop: Callable[[], Awaitable[None]]) -> "asyncio.Task[None]":
        """Run `loop` until it ends, fails or is cancelled.

        Raises RuntimeError outside `own_loops`.
        """
        if self._group is None:
            raise RuntimeError("background loops start only while the process owns them")
        task = self._group.create_task(self._run(name, loop), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self) -> None:
        """Cancel every loop until it has ended; a service does while its bus is connected."""
        await cancel_and_wait(*self._tasks, again_seconds=CANCEL_LOOP_AGAIN_SECONDS)

    async def _run(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._restart_while_unavailable(name, loop)
        except Exception:
            log.exception("loop_failed", loop=name)
            raise

    async def _restart_while_unavailable(
        self, name: str, loop: Callable[[], Awaitable[None]]
    ) -> None:
        pause = FIRST_RETRY_SECONDS
        while True:
            started_at = asyncio.get_running_loop().time()
            try:
                await loop()
                return
            except UnavailableError as error:
                if asyncio.get_running_loop().time() - started_at > LAST_RETRY_SECONDS * 2:
                    pause = FIRST_RETRY_SECONDS
                log.warning("loop_retrying", loop=name, error=str(error), pause_seconds=pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_RETRY_SECONDS)
