"""Consuming the SAMPLES stream: in batches, past FastStream, because samples are hot."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec
import nats.errors
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from schemas.telemetry import GpuSampled
from shared.errors import UnavailableError
from shared.logging import log
from shared.messaging.bus import Bus
from shared.messaging.codec import check_subject
from shared.messaging.routes import ACK_WAIT_SECONDS
from shared.messaging.settlement import RETRY_SECONDS
from shared.messaging.streams import SAMPLES

CHECK_SECONDS: Final = 3.0

_decode = msgspec.msgpack.Decoder(GpuSampled).decode


@dataclass(frozen=True, slots=True)
class SampleConsumer:
    """Hands samples to `handler`, each batch at least once.

    A batch is acknowledged when the handler has returned, and comes again after an error.
    """

    bus: Bus
    durable: str
    handler: Callable[[list[GpuSampled]], Awaitable[None]]
    linger_seconds: float = 0.25
    batch: int = 500

    async def run(self) -> None:
        """Consume until cancelled, also from a stream that was made anew."""
        stream = str(SAMPLES.name)
        config = ConsumerConfig(
            durable_name=self.durable,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT_SECONDS,
            max_ack_pending=self.batch * 8,
        )
        while True:
            try:
                await self.bus.jetstream.add_consumer(stream, config)
                subscription = await self.bus.jetstream.pull_subscribe_bind(
                    self.durable, stream=stream, inbox_prefix=self.bus.pull_inbox
                )
                try:
                    await self._pull(subscription)
                finally:
                    # A fetch cut off leaves messages unread, and a drain would wait for them.
                    with contextlib.suppress(nats.errors.Error):
                        await subscription.unsubscribe()
            except (nats.errors.Error, OSError) as error:
                log.info("samples_interrupted", error=repr(error))
                await asyncio.sleep(self.linger_seconds)

    async def _pull(self, subscription: JetStreamContext.PullSubscription) -> None:
        loop = asyncio.get_running_loop()
        checked_at = loop.time()
        while True:
            if loop.time() - checked_at > CHECK_SECONDS:
                # NotFound means that the stream is a new one: declare again.
                await subscription.consumer_info()
                checked_at = loop.time()
            try:
                messages = await subscription.fetch(self.batch, timeout=self.linger_seconds)
            except (nats.errors.TimeoutError, TimeoutError):
                continue
            samples = []
            for message in messages:
                try:
                    sample = _decode(message.data)
                    check_subject(sample, message.subject)
                    samples.append(sample)
                except msgspec.MsgspecError as error:
                    log.warning("undecodable", subject=message.subject, error=str(error))
            try:
                await self.handler(samples)
            except UnavailableError as error:
                log.warning("samples_postponed", error=str(error))
                for message in messages:
                    await message.nak(delay=RETRY_SECONDS)
                continue
            for message in messages:
                await message.ack()
