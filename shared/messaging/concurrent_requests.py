"""Requests of which many are served at once, received past FastStream.

Its contexts, scopes and middlewares around each request were a quarter of what a scheduler under
load does (docs/explanation/performance.md).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from shared import tracing
from shared.logging import log
from shared.messaging.codec import TypedCodec
from shared.messaging.settlement import DeadLetter, answer_request

GRACE_SECONDS: Final = 5.0


@dataclass(slots=True, eq=False)
class ConcurrentRequests:
    """Requests on one subject, shared by all members of a queue; at most `workers` at once here."""

    subject: str
    queue: str
    handle: Callable[[Any], Awaitable[Any]]
    codec: TypedCodec
    workers: int
    _serving: set["asyncio.Task[None]"] = field(default_factory=set, init=False)
    _subscription: Subscription | None = field(default=None, init=False)

    async def start(self, client: Client, dead_letter: DeadLetter) -> None:
        """Subscribe."""
        free = asyncio.Semaphore(self.workers)

        async def serve(raw: Msg) -> None:
            try:
                structlog.contextvars.bind_contextvars(subject=raw.subject)  # this task's alone
                with tracing.handling(raw.subject, raw.headers, raw.data):
                    answer = await answer_request(lambda: self._apply(raw), raw, dead_letter)
                    if raw.reply:
                        await client.publish(raw.reply, answer)
            except (nats.errors.Error, OSError) as error:
                log.warning("answer_not_sent", subject=raw.subject, error=repr(error))
            finally:
                free.release()

        async def receive(raw: Msg) -> None:
            await free.acquire()
            task = asyncio.create_task(serve(raw))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

        self._subscription = await client.subscribe(self.subject, queue=self.queue, cb=receive)

    async def stop(self) -> None:
        """Take no more, and let those under way end, within 5 s."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()
            self._subscription = None
        if self._serving:
            await asyncio.wait(self._serving, timeout=GRACE_SECONDS)

    async def _apply(self, raw: Msg) -> Any:
        return await self.handle(self.codec.decode_raw(raw))
