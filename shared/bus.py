"""The bus: FastStream routes for commands, queries and durable events; plain NATS for what is hot.

Commands and queries are core requests, answered by their owner. Durable events come from the EVENTS
stream; `settlement` says what becomes of those whose handler fails.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
import nats.errors
from faststream.nats import NatsBroker, NatsRouter
from faststream.security import SASLPlaintext
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.api import AckPolicy as JetStreamAck
from nats.js.api import ConsumerConfig, StreamConfig
from nats.js.errors import APIError, NotFoundError

from schemas.base import Command, Event, Live, Message, Query, pattern_for, subject_for
from schemas.errors import Accepted, Refused, Reply
from schemas.telemetry import GpuSampled
from shared.codec import TypedCodec, check_size, encode
from shared.errors import RefusedError, UnavailableError
from shared.logging import log
from shared.routes import (
    ACK_WAIT_SECONDS,
    DurableRoute,
    Route,
    command_route,
    event_route,
    query_route,
)
from shared.settings import CommonSettings
from shared.settlement import RETRY_SECONDS, DeadLetter, Settlement
from shared.streams import EVENTS, SAMPLES, STREAMS

M = TypeVar("M", bound=Message)
V = TypeVar("V", bound=msgspec.Struct)

__all__ = ["Bus", "DurableRoute", "Route", "command_route", "event_route", "query_route"]

WATCH_SECONDS: Final = 1.0
PUBLISH_TIMEOUT_SECONDS: Final = 5.0
HEADERS_BYTES: Final = 256  # they count as part of a stored message

_reply_decoder = msgspec.msgpack.Decoder(Accepted | Refused)


async def _log_dead_letter(subject: str, body: bytes, error: str) -> None:
    log.error("dead_letter", subject=subject, bytes=len(body), error=error)


def _refusal(query: Query, data: bytes, error: msgspec.MsgspecError) -> Exception:
    """What an answer that is not the view means."""
    try:
        return RefusedError.from_refused(msgspec.msgpack.decode(data, type=Refused))
    except msgspec.MsgspecError:
        return UnavailableError(f"{subject_for(query)}: unreadable answer: {error}")


@dataclass
class Bus:
    """One connection to NATS.

    Made closed; `open` connects and declares, `start` subscribes the routes.
    """

    name: str
    url: str
    credentials: str | None = None
    dead_letter: DeadLetter = _log_dead_letter
    on_new_stream: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    on_stream_seen: list[Callable[[str, datetime], Awaitable[None]]] = field(default_factory=list)
    _durable_routes: list[DurableRoute] = field(default_factory=list)
    _seen: dict[str, datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.broker = NatsBroker(
            self.url,
            name=f"gpusteward-{self.name}",
            logger=None,
            apply_types=False,
            codec=TypedCodec(Any),
            middlewares=(Settlement(self._keep_dead_letter),),
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,  # type: ignore[arg-type]  # nats-py takes seconds as float
            ping_interval=5,
            max_outstanding_pings=2,
            drain_timeout=5,
            graceful_timeout=5.0,
            error_cb=self._on_error,
            **self._login(),
        )

    @classmethod
    def from_settings(cls, name: str, settings: CommonSettings) -> "Bus":
        """A bus for the service `name`."""
        return cls(name, settings.nats_url, settings.nats_credentials)

    @classmethod
    @asynccontextmanager
    async def connected(cls, url: str, credentials: str | None, name: str) -> AsyncIterator["Bus"]:
        """A bus for a client without routes, closed at the end."""
        bus = cls(name, url, credentials)
        await bus.open()
        try:
            yield bus
        finally:
            await bus.close()

    def include(self, routes: Sequence[Route]) -> None:
        """Add routes; before `open`."""
        self._durable_routes += [route.durable for route in routes if route.durable is not None]
        self.broker.include_router(NatsRouter(handlers=[route.nats for route in routes]))

    async def open(self) -> None:
        """Connect, waiting for the server without limit, and declare streams and consumers."""
        await self.broker.connect()
        await self._declare_when_possible()

    async def start(self) -> None:
        """Subscribe the routes."""
        await self.broker.start()

    async def settle(self) -> None:
        """Wait until the server knows of every subscription made so far; not while it is away."""
        if self.is_connected:
            with contextlib.suppress(nats.errors.Error, OSError):
                # nats-py's PING overtakes what is still buffered; the second one comes after it.
                await self.nats.flush()
                await self.nats.flush()

    async def close(self) -> None:
        """Unsubscribe, let running handlers end within 5 s, disconnect."""
        await self.broker.stop()

    @property
    def nats(self) -> Client:
        """The connection. Raises RuntimeError before `open`."""
        connection = self.broker._connection  # noqa: SLF001  # FastStream shows its client nowhere else
        if connection is None:
            raise RuntimeError("the bus is not connected")
        return connection

    @property
    def is_connected(self) -> bool:
        """Whether the server answers at present."""
        connection = self.broker._connection  # noqa: SLF001  # as above
        return connection is not None and connection.is_connected

    @property
    def jetstream(self) -> JetStreamContext:
        """JetStream on this connection."""
        return self.nats.jetstream(timeout=PUBLISH_TIMEOUT_SECONDS)

    async def request(self, command: Command, *, timeout_seconds: float = 5.0) -> Reply:
        """Send a command and wait for its owner's answer. Raises UnavailableError without one."""
        try:
            data = await self._ask(command, timeout_seconds)
            reply: Reply = _reply_decoder.decode(data)
        except RefusedError as error:
            return error.refused(command.command_id)
        except msgspec.MsgspecError as error:
            raise UnavailableError(f"{subject_for(command)}: unreadable answer: {error}") from error
        return reply

    async def query(self, query: Query, reply: type[V], *, timeout_seconds: float = 5.0) -> V:
        """Ask an owner. Raises RefusedError, or UnavailableError without an answer."""
        data = await self._ask(query, timeout_seconds)
        try:
            return msgspec.msgpack.decode(data, type=reply)
        except msgspec.MsgspecError as error:
            raise _refusal(query, data, error) from None

    async def publish_live(self, message: Live) -> None:
        """Publish a passing view; dropped while the bus is away."""
        await self._publish(subject_for(message), encode(message))

    async def publish_sample(self, sample: GpuSampled) -> None:
        """Publish a sample, unacknowledged; dropped while the bus is away."""
        await self._publish(subject_for(sample), encode(sample))

    async def publish_event(self, event: Event) -> None:
        """Publish an event into its stream; raises as `publish_stored`."""
        await self.publish_stored(subject_for(event), encode(event), event.message_id)

    async def publish_stored(self, subject: str, body: bytes, message_id: UUID) -> None:
        """Store bytes in EVENTS, once per id. Raises UnavailableError, RefusedError (too large)."""
        if not self.is_connected:
            raise UnavailableError("the bus is not connected")
        check_size(subject, body, self.nats.max_payload - HEADERS_BYTES)
        try:
            await self.jetstream.publish(
                subject,
                body,
                timeout=PUBLISH_TIMEOUT_SECONDS,
                stream=EVENTS.name,
                headers={"Nats-Msg-Id": str(message_id)},
            )
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise UnavailableError(f"{subject}: {error!r}") from error

    async def listen(
        self,
        message: type[M],
        handler: Callable[[M], Awaitable[None]],
        *,
        key: str | None = None,
    ) -> Subscription:
        """Hear messages as they pass, in order, without replay, until it is unsubscribed.

        A failing handler loses that message.
        """
        decode = msgspec.msgpack.Decoder(message).decode

        async def on_message(raw: Msg) -> None:
            try:
                await handler(decode(raw.data))
            except msgspec.MsgspecError as error:
                log.warning("undecodable", subject=raw.subject, error=str(error))
            except UnavailableError as error:
                log.warning("listener_failed", subject=raw.subject, error=str(error))
            except Exception:  # noqa: BLE001  # a message never ends its process
                log.exception("listener_failed", subject=raw.subject)

        return await self.nats.subscribe(pattern_for(message, key), cb=on_message)

    async def consume_samples(
        self,
        durable: str,
        handler: Callable[[list[GpuSampled]], Awaitable[None]],
        *,
        batch: int = 500,
        linger_seconds: float = 0.25,
    ) -> None:
        """Hand over samples of the SAMPLES stream until cancelled, each batch at least once.

        A batch is acknowledged when its handler has returned, and comes again after an error.
        """
        config = ConsumerConfig(
            durable_name=durable,
            ack_policy=JetStreamAck.EXPLICIT,
            ack_wait=ACK_WAIT_SECONDS,
            max_ack_pending=batch * 8,
        )
        decode = msgspec.msgpack.Decoder(GpuSampled).decode
        while True:
            try:
                await self.jetstream.add_consumer(str(SAMPLES.name), config)
                subscription = await self.jetstream.pull_subscribe_bind(
                    durable, stream=str(SAMPLES.name)
                )
                try:
                    await self._pull(subscription, decode, handler, batch, linger_seconds)
                finally:
                    # A fetch cut off leaves messages unread, and a drain would wait for them.
                    with contextlib.suppress(nats.errors.Error):
                        await subscription.unsubscribe()
            except (nats.errors.Error, OSError) as error:
                log.info("samples_interrupted", error=repr(error))
                await asyncio.sleep(linger_seconds)

    async def _pull(
        self,
        subscription: JetStreamContext.PullSubscription,
        decode: Callable[[bytes], GpuSampled],
        handler: Callable[[list[GpuSampled]], Awaitable[None]],
        batch: int,
        linger_seconds: float,
    ) -> None:
        checked = asyncio.get_running_loop().time()
        while True:
            now = asyncio.get_running_loop().time()
            if now - checked > WATCH_SECONDS * 3:
                # NotFound means that the stream is a new one: declare again.
                await subscription.consumer_info()
                checked = now
            try:
                messages = await subscription.fetch(batch, timeout=linger_seconds)
            except (nats.errors.TimeoutError, TimeoutError):
                continue
            samples = []
            for message in messages:
                try:
                    samples.append(decode(message.data))
                except msgspec.MsgspecError as error:
                    log.warning("undecodable", subject=message.subject, error=str(error))
            try:
                await handler(samples)
            except UnavailableError as error:
                log.warning("samples_postponed", error=str(error))
                for message in messages:
                    await message.nak(delay=RETRY_SECONDS)
                continue
            for message in messages:
                await message.ack()

    async def watch_streams(self) -> None:
        """Declare everything again, and tell `on_new_stream`, when a stream is a new one."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if not self.is_connected:
                continue
            try:
                new = await self._declare()
            except (nats.errors.Error, OSError, TimeoutError) as error:
                log.info("streams_unreachable", error=repr(error))
                continue
            if new:
                log.warning("streams_are_new", streams=new)
                for callback in self.on_new_stream:
                    await callback()

    async def _declare_when_possible(self) -> None:
        while True:
            try:
                await self._declare()
                return
            except (nats.errors.Error, OSError, TimeoutError) as error:
                log.warning("streams_undeclared", error=repr(error))
                await asyncio.sleep(RETRY_SECONDS / 4)

    async def _declare(self) -> list[str]:
        """Make streams and consumers what they should be.

        Returns the names of the streams that are other ones than last time.
        """
        new = []
        for stream in STREAMS:
            name = str(stream.name)
            created = await self._declare_stream(stream)
            before = self._seen.get(name)
            if before == created:
                continue
            if name == EVENTS.name:
                for route in self._durable_routes:
                    await self.jetstream.add_consumer(name, route.consumer())
            for callback in self.on_stream_seen:
                await callback(name, created)
            self._seen[name] = created
            if before is not None:
                new.append(name)
        return new

    async def _declare_stream(self, stream: StreamConfig) -> datetime:
        name = str(stream.name)
        try:
            info = await self.jetstream.stream_info(name)
        except NotFoundError:
            try:
                info = await self.jetstream.add_stream(stream)
            except APIError:  # another service was quicker
                info = await self.jetstream.stream_info(name)
        if info.created is None:
            raise UnavailableError(f"stream {name} does not say when it was created")
        return info.created

    async def _ask(self, message: Message, timeout_seconds: float) -> bytes:
        subject, body = subject_for(message), encode(message)
        if not self.is_connected:
            raise UnavailableError("the bus is not connected")
        check_size(subject, body, self.nats.max_payload)
        try:
            reply = await self.nats.request(subject, body, timeout=timeout_seconds)
        except nats.errors.NoRespondersError as error:
            raise UnavailableError(f"nobody answers {subject}") from error
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise UnavailableError(f"{subject}: {error!r}") from error
        return reply.data

    async def _publish(self, subject: str, body: bytes) -> None:
        if self.is_connected:
            await self.nats.publish(subject, body)

    async def _keep_dead_letter(self, subject: str, body: bytes, error: str) -> None:
        # Looked up late: a service with a database replaces it after the bus was made.
        await self.dead_letter(subject, body, error)

    async def _on_error(self, error: Exception) -> None:
        log.warning("nats_error", error=repr(error))

    def _login(self) -> dict[str, Any]:
        if self.credentials is None:
            return {}
        login = json.loads(Path(self.credentials).read_text())
        return {"security": SASLPlaintext(username=login["user"], password=login["password"])}
