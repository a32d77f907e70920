"""Consuming a stream of samples: in batches, past FastStream, because samples are hot."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from uuid import uuid4

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from schemas.base import Sample, pattern_for
from shared.errors import UnavailableError, shorten
from shared.logging import log
from shared.messaging.bus import Bus
from shared.messaging.codec import check_subject, decoder_of
from shared.messaging.consumer_progress import Standstill, state_of
from shared.messaging.raw_messages import RawMessage, receive
from shared.messaging.routes import ACK_WAIT_SECONDS
from shared.messaging.settlement import HOPELESS, RETRY_SECONDS
from shared.waiting import take_turns, within

CHECK_SECONDS: Final = 3.0
ANSWER_TIMEOUT_SECONDS: Final = 2.0  # beyond the linger
SERVER_TIMEOUT_SECONDS: Final = 1.0  # a consumer without a leader does not answer at all
NOTHING_MORE: Final = frozenset({"404", "408"})  # there are no more messages, or not in time
NAK: Final = b"-NAK"
IN_PROGRESS: Final = b"+WPI"

S = TypeVar("S", bound=Sample)


@dataclass(slots=True)
class _Pull:
    """What one request for messages brings. The server ends it with a status, unless it is full."""

    size: int
    messages: list[RawMessage] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    status: str | None = None

    @property
    def is_full(self) -> bool:
        return len(self.messages) == self.size

    def take(self, message: RawMessage) -> None:
        if message.reply:
            self.messages.append(message)
        else:  # NATS/1.0 404 No Messages
            self.status = message.headers[9:12].decode(errors="replace")
        if self.status is not None or self.is_full:
            self.ended.set()


@dataclass(slots=True)
class _Inbox:
    """Where pulled messages come to: one callback for each, and one pull under way at a time."""

    bus: Bus
    stream: str
    durable: str
    size: int
    linger_seconds: float
    name: str
    under_way: _Pull = field(default_factory=lambda: _Pull(0))

    async def pull(self, *, lingers: bool = True) -> None:
        """Request the next messages; without lingering, no more than wait already, if any do."""
        self.under_way = _Pull(self.size)
        request = {
            "batch": self.size,
            "expires": int(self.linger_seconds * 1e9),
            "no_wait": not lingers,
        }
        await self.bus.nats.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.durable}",
            msgspec.json.encode(request),
            reply=self.name,
        )

    def take(self, message: RawMessage) -> None:
        self.under_way.take(message)


async def answer(client: Client, messages: Sequence[RawMessage], word: bytes = b"") -> None:
    """Acknowledge messages, or tell another word of them, in one write: one of each takes as long
    as decoding it.
    """
    answers = [b"PUB %b %d\r\n%b\r\n" % (m.reply, len(word), word) for m in messages]
    await client._send_command(b"".join(answers))  # noqa: SLF001  # nats-py has none for several
    await client._flush_pending()  # noqa: SLF001  # as above


@dataclass(frozen=True, slots=True)
class SampleConsumer(Generic[S]):
    """Hands samples of one kind to `handler`, each batch at least once.

    A batch is acknowledged when the handler has returned, and handed over again while the outside
    is down. Two are handled at a time, so that one is decoded while the other waits for a server; a
    third one comes meanwhile, and no more.
    """

    bus: Bus
    stream: str
    durable: str
    sample: type[S]
    handler: Callable[[list[S]], Awaitable[None]]
    linger_seconds: float = 0.25
    batch: int = 500

    @property
    def _streams(self) -> JetStreamContext:
        return self.bus.nats.jetstream(timeout=SERVER_TIMEOUT_SECONDS)

    async def run(self) -> None:
        """Consume until cancelled, also from a stream that was made anew."""
        config = ConsumerConfig(
            durable_name=self.durable,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT_SECONDS,
            max_ack_pending=self.batch * 8,
        )
        while True:
            try:
                await self._streams.add_consumer(self.stream, config)
                async with self._inbox() as inbox, asyncio.TaskGroup() as handlers:
                    await self._consume(inbox, handlers)
            except* (nats.errors.Error, OSError, UnavailableError) as errors:
                log.info("samples_interrupted", error=repr(errors.exceptions[0]))
            await asyncio.sleep(self.linger_seconds)

    @asynccontextmanager
    async def _inbox(self) -> AsyncIterator[_Inbox]:
        name = f"{self.bus.pull_inbox.decode()}{uuid4().hex}"
        inbox = _Inbox(self.bus, self.stream, self.durable, self.batch, self.linger_seconds, name)
        try:
            async with receive(self.bus.nats, name, inbox.take):
                await inbox.pull()
                yield inbox
        finally:
            with contextlib.suppress(nats.errors.Error, OSError):
                await answer(self.bus.nats, inbox.under_way.messages, NAK)

    async def _consume(self, inbox: _Inbox, handlers: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        previous: asyncio.Task[None] | None = None
        checked_at, standstill = loop.time(), Standstill()
        while True:
            pull = inbox.under_way
            async with within(self.linger_seconds + ANSWER_TIMEOUT_SECONDS):
                await pull.ended.wait()
            is_odd = pull.status is not None and pull.status not in NOTHING_MORE
            if is_odd or loop.time() - checked_at > CHECK_SECONDS:
                # NotFound means that the stream is a new one: declare again.
                info = await self._streams.consumer_info(self.stream, self.durable)
                checked_at = loop.time()
                if standstill.seconds(state_of(info), checked_at) > standstill.limit_seconds:
                    raise UnavailableError(f"{self.durable} stands still")  # begin anew
            if is_odd:
                log.info("samples_pull_ended", status=pull.status)
                await asyncio.sleep(self.linger_seconds)
            await inbox.pull(lingers=not pull.is_full)  # more of those that are late wait already
            if pull.messages:
                handled = handlers.create_task(self._hand_over(pull.messages))
                if previous is not None:
                    await previous
                previous = handled

    async def _hand_over(self, messages: list[RawMessage]) -> None:
        try:
            await self._handle(await self._decode(messages), messages)
        except asyncio.CancelledError:
            await answer(self.bus.nats, messages, NAK)
            raise
        await answer(self.bus.nats, messages)

    async def _decode(self, messages: Sequence[RawMessage]) -> list[S]:
        """Decode the samples that can be; others are acknowledged with them."""
        samples: list[S] = []
        decode = decoder_of(self.sample)
        prefix = pattern_for(self.sample).removesuffix("*")
        async for message in take_turns(messages):
            subject = message.subject.decode(errors="replace")
            try:
                sample = decode(message.data)
                if subject != prefix + sample.node_id:
                    check_subject(sample, subject)
                samples.append(sample)
            except msgspec.MsgspecError as error:
                log.warning("undecodable", subject=subject, error=str(error))
        return samples

    async def _handle(self, samples: list[S], messages: list[RawMessage]) -> None:
        """Handle a batch until it is done; while the outside is down, further messages wait in the
        stream.

        A batch that fails is handed over one by one; what still fails is given up, because it would
        be redelivered for ever.
        """
        clock = asyncio.get_running_loop().time
        told_at = clock()
        batches = [samples] if samples else []
        while batches:
            try:
                await self.handler(batches[0])
                del batches[0]
                continue
            except UnavailableError as error:
                log.warning("samples_postponed", error=str(error))
            except Exception as error:  # noqa: BLE001  # a message never ends its process
                failed = batches.pop(0)
                if len(failed) > 1:
                    batches[:0] = [[sample] for sample in failed]
                else:
                    cause = None if isinstance(error, HOPELESS) else error
                    node_id, text = failed[0].node_id, shorten(repr(error))
                    log.error("sample_given_up", node_id=node_id, error=text, exc_info=cause)
                continue
            await asyncio.sleep(RETRY_SECONDS)
            if clock() - told_at > ACK_WAIT_SECONDS / 3:
                await answer(self.bus.nats, messages, IN_PROGRESS)
                told_at = clock()
