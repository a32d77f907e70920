"""Publishes what an engine writes while it runs.

The attempt makes a `LogStreamer`, runs `stream` as a task beside its work, cancels that once the
engine is stopped, and then awaits `finish`. Neither ever raises, and the engine is never slowed:
where it writes more than can be published, lines are left out.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from schemas.executor.attempts import StartExperiment
from schemas.executor.logs import MAX_LINES, AttemptLogged
from services.executor.logs.engine_log import EngineLog, Excerpt
from shared.clock import utcnow
from shared.logging import log

INTERVAL_SECONDS: Final = 0.25
MESSAGE_BYTES: Final = 60 * 1024  # of text; with the rest of the message below 64 KiB
# What may wait, so that the lines of a burst are published about a second late at most.
BACKLOG_MESSAGES: Final = 4


@dataclass(slots=True, kw_only=True)
class LogStreamer:
    """Publishes the lines of one attempt's log in order, at most four messages a second.

    From what is written after it is made; an unfinished line waits for its end.
    """

    command: StartExperiment
    engine_log: EngineLog
    publish: Callable[[AttemptLogged], Awaitable[None]]
    _published: int = field(init=False)

    def __post_init__(self) -> None:
        self._published = self.engine_log.end

    async def stream(self) -> None:
        """Stream until cancelled."""
        while True:
            await self._publish_next(is_ended=False)
            await asyncio.sleep(INTERVAL_SECONDS)

    async def finish(self) -> None:
        """The last lines of an engine that has ended, also an unfinished one."""
        for _ in range(BACKLOG_MESSAGES):
            await self._publish_next(is_ended=True)

    async def _publish_next(self, *, is_ended: bool) -> None:
        if self.engine_log.end <= self._published:
            return
        excerpt = await asyncio.to_thread(self._next, is_ended=is_ended)
        self._published = excerpt.next_offset
        if not excerpt.lines:
            return
        message = AttemptLogged(
            observed_at=utcnow(),
            executor_id=self.command.executor_id,
            experiment_id=self.command.experiment_id,
            attempt_id=self.command.attempt_id,
            task_id=self.command.task_id,
            offset=excerpt.offset,
            next_offset=excerpt.next_offset,
            lines=excerpt.lines,
        )
        try:
            await self.publish(message)
        except Exception:  # noqa: BLE001  # the attempt goes on without its live lines
            log.exception("log_not_published", attempt_id=str(self.command.attempt_id))

    def _next(self, *, is_ended: bool) -> Excerpt:
        begin = self._published
        if self.engine_log.end - begin > BACKLOG_MESSAGES * MESSAGE_BYTES:
            begin = self.engine_log.line_after(self.engine_log.end - MESSAGE_BYTES)
        return self.engine_log.read(begin, MAX_LINES, max_bytes=MESSAGE_BYTES, is_ended=is_ended)
