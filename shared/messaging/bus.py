"""The bus: FastStream routes for commands, queries and durable events; plain NATS for what is hot.

Commands and queries are core requests, answered by their owner. Durable events come from the EVENTS
stream; `settlement` decides what becomes of those whose handler fails.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
import nats.errors
from faststream.nats import NatsBroker, NatsRouter
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.api import INBOX_PREFIX
from nats.protocol.parser import AUTHORIZATION_VIOLATION

from schemas.base import (
    Command,
    Event,
    Live,
    Message,
    Query,
    Sample,
    pattern_for,
    subject_for,
    tag_of,
)
from schemas.errors import Refused, Reply
from shared import tracing
from shared.errors import NodeUnavailableError, RefusedError, UnavailableError
from shared.logging import log
from shared.messaging.bus_login import BusLogin
from shared.messaging.codec import (
    TypedCodec,
    check_size,
    check_subject,
    decode_reply,
    decoder_of,
    encode,
)
from shared.messaging.concurrent_requests import ConcurrentRequests
from shared.messaging.routes import DurableRoute, Route, command_route, event_route, query_route
from shared.messaging.senders import has_our_users, sign_command
from shared.messaging.settlement import DeadLetter, Settlement
from shared.messaging.stream_state import StreamReplicas
from shared.messaging.streams import EVENTS
from shared.settings import CommonSettings, nats_security
from shared.tls.nats import NatsSecurity

M = TypeVar("M", bound=Message)
V = TypeVar("V", bound=msgspec.Struct)

__all__ = ["Bus", "DurableRoute", "Route", "command_route", "event_route", "query_route"]

STREAMS_TIMEOUT_SECONDS: Final = 5.0
# One that was sent while its stream had no leader is never answered. Repeated it is stored once.
PUBLISH_TIMEOUT_SECONDS: Final = 2.0
HEADERS_BYTES: Final = 256  # they count as part of a stored message
RETRY_SECONDS: Final = 0.1
ASK_AGAIN_SECONDS: Final = 2.0
DOCTOR: Final = "`gpusteward doctor` shows what runs here and what does not"
BUS_AWAY: Final = f"the message bus (NATS) does not answer; {DOCTOR}"


class _NotAnswered(UnavailableError):
    """Whoever received the request has not answered in time."""


class _NotDelivered(UnavailableError):
    """Nothing has received the request, so that it may be sent again."""


def _refusal(query: Query, data: bytes, error: msgspec.MsgspecError) -> Exception:
    """Return the error that an answer means which is not the view."""
    try:
        return RefusedError.from_refused(msgspec.msgpack.decode(data, type=Refused))
    except msgspec.MsgspecError:
        return _unreadable(query, error)


def _unreadable(message: Message, error: msgspec.MsgspecError) -> UnavailableError:
    return UnavailableError(f"the answer of {_owner(message)} cannot be read: {error}")


def _owner(message: Message) -> str:
    """Return the service that answers a message, for people."""
    service = tag_of(type(message)).partition(".")[0]
    if message.key_field is None:
        return f"the {service} service"
    return f"the {service} service of node {getattr(message, message.key_field)}"


def _silent(message: Message, how: str) -> UnavailableError:
    if message.key_field is not None:
        return NodeUnavailableError(
            f"{_owner(message)} {how}; `gpusteward nodes` shows which nodes report"
        )
    return UnavailableError(f"{_owner(message)} {how}; {DOCTOR}")


@dataclass
class Bus:
    """One connection to NATS, made closed; `open` connects, `start` subscribes the routes.

    `url` may name the servers of a cluster, as `read_nats_addresses` takes them; the others of one
    are learnt of its first one that answers.
    With `awaits_services` a request that no service of the platform receives is sent again until
    its time-out: a service that died is being started again. A node's service may never be.
    """

    name: str
    url: str
    credentials: str | None = None
    awaits_services: bool = False
    replicas: StreamReplicas = field(default_factory=StreamReplicas)
    security: NatsSecurity | None = None
    durable_routes: list[DurableRoute] = field(default_factory=list, init=False)
    _concurrent: list[tuple[ConcurrentRequests, DeadLetter]] = field(
        default_factory=list, init=False
    )
    _jetstream: JetStreamContext | None = field(default=None, init=False)
    user: str | None = field(default=None, init=False)
    pull_inbox: bytes = field(default=INBOX_PREFIX, init=False)

    def __post_init__(self) -> None:
        login = BusLogin.of(self.url, self.credentials, self.security)
        self.user, self.pull_inbox = login.user, login.pull_inbox
        self.broker = NatsBroker(
            name=f"gpusteward-{self.name}",
            logger=None,
            apply_types=False,
            serializer=None,  # no model of each handler: messages are decoded by their codec
            codec=TypedCodec(Any),
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,  # type: ignore[arg-type]  # nats-py takes seconds as float
            ping_interval=5,
            max_outstanding_pings=2,
            drain_timeout=5,
            graceful_timeout=5.0,
            error_cb=self._on_error,
            **login.broker_options,
        )

    @classmethod
    def from_settings(
        cls, name: str, settings: CommonSettings, *, awaits_services: bool = False
    ) -> "Bus":
        """A bus for the service `name`, which is traced from now on if the settings enable it."""
        if settings.traces_endpoint is not None:
            tracing.start(name, settings.traces_endpoint)
        replicas = StreamReplicas(settings.stream_replicas, settings.sample_stream_replicas)
        return cls(
            name,
            settings.nats_url,
            settings.nats_credentials,
            awaits_services,
            replicas,
            nats_security(settings),
        )

    def include(self, routes: Sequence[Route], dead_letter: DeadLetter) -> None:
        """Add routes, and where their messages go that are given up; before `open`."""
        self.durable_routes += [route.durable for route in routes if route.durable is not None]
        self._concurrent += [
            (requests, dead_letter) for route in routes for requests in route.concurrent
        ]
        handlers = [
            handler for route in routes for handler in (route.nats, route.signed) if handler
        ]
        for route in routes:
            route.origin.has_users = has_our_users(self.user)
        self.broker.include_router(
            NatsRouter(handlers=handlers, middlewares=(Settlement(dead_letter),))
        )
        for subscriber in self.broker.subscribers:
            # Pulled messages come to an inbox that the connection's own prefix does not reach.
            options = getattr(subscriber, "extra_options", {})
            if "inbox_prefix" in options:
                options["inbox_prefix"] = self.pull_inbox

    async def open(self) -> None:
        """Connect, waiting for the server without limit."""
        await self.broker.connect()
        client: Any = self.nats
        close = client._process_err  # noqa: SLF001  # see below

        async def stay(error: str) -> None:
            # nats-py closes for good where its password is refused; the file may have a new one.
            if AUTHORIZATION_VIOLATION not in error:
                await close(error)

        client._process_err = stay  # noqa: SLF001  # nats-py has no option for it

    async def start(self) -> None:
        """Subscribe the routes."""
        await self.broker.start()
        await self.start_concurrent()

    async def start_concurrent(self) -> None:
        """Subscribe those routes that a started broker of FastStream has not subscribed."""
        for requests, dead_letter in self._concurrent:
            await requests.start(self.nats, dead_letter)

    async def stop_concurrent(self) -> None:
        """Unsubscribe them, and let what they serve end within 5 s."""
        await asyncio.gather(*(requests.stop() for requests, _ in self._concurrent))

    async def flush(self) -> None:
        """Wait until the server knows of every subscription made so far; not while it is away."""
        if self.is_connected:
            with contextlib.suppress(nats.errors.Error, OSError):
                # nats-py's PING overtakes what is still buffered; the second one comes after it.
                await self.nats.flush()
                await self.nats.flush()

    async def close(self) -> None:
        """Unsubscribe, let running handlers end within 5 s, disconnect."""
        await self.stop_concurrent()
        await self.broker.stop()
        self._jetstream = None

    @property
    def nats(self) -> Client:
        """The connection. Raises RuntimeError before `open`."""
        connection = self.broker._connection  # noqa: SLF001  # FastStream shows its client nowhere else
        if connection is None:
            raise RuntimeError("the bus is not connected")
        return connection

    @property
    def is_connected(self) -> bool:
        """True while the server answers."""
        connection = self.broker._connection  # noqa: SLF001  # as above
        return connection is not None and connection.is_connected

    @property
    def encryption(self) -> ssl.SSLObject | None:
        """The TLS of the connection; None while there is none."""
        if not self.is_connected:
            return None
        transport: Any = self.nats._transport  # noqa: SLF001  # nats-py shows it nowhere
        writer = getattr(transport, "_io_writer", None)
        return writer.get_extra_info("ssl_object") if writer is not None else None

    @property
    def is_clustered(self) -> bool:
        """True if the server that we are connected to is one of a cluster."""
        return bool(self.nats._server_info.get("cluster"))  # noqa: SLF001  # nats-py shows it nowhere

    @property
    def jetstream(self) -> JetStreamContext:
        if self._jetstream is None:  # one for all events: it makes locks and queues of its own
            self._jetstream = self.nats.jetstream(timeout=STREAMS_TIMEOUT_SECONDS)
        return self._jetstream

    async def request(self, command: Command, *, timeout_seconds: float = 5.0) -> Reply:
        """Send a command and wait for its owner's answer. Raises UnavailableError without one."""
        try:
            data = await self._request(sign_command(command, self.user), timeout_seconds)
            reply = decode_reply(data)
        except RefusedError as error:
            return error.as_refused(command.command_id)
        except msgspec.MsgspecError as error:
            raise _unreadable(command, error) from error
        return reply

    async def query(self, query: Query, reply: type[V], *, timeout_seconds: float = 5.0) -> V:
        """Request an answer of an owner. Raises RefusedError, or UnavailableError without one."""
        data = await self._request(query, timeout_seconds)
        try:
            return msgspec.msgpack.decode(data, type=reply)
        except msgspec.MsgspecError as error:
            raise _refusal(query, data, error) from None

    async def publish_live(self, message: Live | Sample) -> None:
        """Publish a passing view or a sample, unacknowledged; dropped while the bus is away."""
        if self.is_connected:
            await self.nats.publish(subject_for(message), encode(message))

    async def publish_event(self, event: Event) -> None:
        """Publish an event into its stream; raises as `publish_stored`."""
        await self.publish_stored(
            subject_for(event), encode(event), event.message_id, tracing.traceparent_of(event)
        )

    async def publish_stored(
        self, subject: str, body: bytes, message_id: UUID, traceparent: str | None = None
    ) -> None:
        """Store bytes in EVENTS, once per id. Raises UnavailableError, RefusedError (too large)."""
        if not self.is_connected:
            raise UnavailableError(BUS_AWAY)
        check_size(subject, body, self.nats.max_payload - HEADERS_BYTES)
        try:
            await self.jetstream.publish(
                subject,
                body,
                timeout=PUBLISH_TIMEOUT_SECONDS,
                stream=EVENTS.name,
                headers={"Nats-Msg-Id": str(message_id), **tracing.headers(traceparent)},
            )
        except (nats.errors.Error, OSError, TimeoutError) as error:
            log.warning("publish_failed", subject=subject, error=repr(error))
            raise UnavailableError(f"the message bus (NATS) stored no event; {DOCTOR}") from error

    async def listen(
        self,
        message: type[M],
        handler: Callable[[M], Awaitable[None]],
        *,
        key: str | None = None,
    ) -> Subscription:
        """Receive messages as they pass, in order, without replay, until it is unsubscribed.

        A failing handler loses that message.
        """
        decode = decoder_of(message)

        async def on_message(raw: Msg) -> None:
            try:
                message = decode(raw.data)
                check_subject(message, raw.subject)
                await handler(message)
            except msgspec.MsgspecError as error:
                log.warning("undecodable", subject=raw.subject, error=str(error))
            except UnavailableError as error:
                log.warning("listener_failed", subject=raw.subject, error=str(error))
            except Exception:  # noqa: BLE001  # a message never ends its process
                log.exception("listener_failed", subject=raw.subject)

        return await self.nats.subscribe(pattern_for(message, key), cb=on_message)

    async def _request(self, message: Message, timeout_seconds: float) -> bytes:
        give_up_at = time.monotonic() + timeout_seconds
        # Who was asked may have been killed with the command in hand. It counts once, by its id.
        is_asked_again = isinstance(message, Command) and message.key_field is None
        while True:
            seconds_left = max(0.0, give_up_at - time.monotonic())
            if is_asked_again and seconds_left > ASK_AGAIN_SECONDS:
                seconds_left = ASK_AGAIN_SECONDS
            else:
                is_asked_again = False
            try:
                return await self._request_once(message, seconds_left)
            except _NotAnswered as error:
                if not is_asked_again:
                    raise _silent(message, "did not answer in time") from error
                is_asked_again = False
                continue
            except _NotDelivered as error:
                is_away = not self.is_connected
                may_return = self.awaits_services and (is_away or message.key_field is None)
                if not may_return or time.monotonic() + RETRY_SECONDS >= give_up_at:
                    silent = _silent(message, "does not answer")
                    raise UnavailableError(BUS_AWAY) if is_away else silent from error
            await asyncio.sleep(RETRY_SECONDS)

    async def _request_once(self, message: Message, timeout_seconds: float) -> bytes:
        subject, body = subject_for(message), encode(message)
        if not self.is_connected:
            raise _NotDelivered
        check_size(f"a message to {_owner(message)}", body, self.nats.max_payload)
        try:
            with tracing.requesting(subject, message):
                reply = await self.nats.request(
                    subject,
                    body,
                    timeout=timeout_seconds,
                    headers=tracing.headers(tracing.traceparent_of(message)) or None,
                )
        except nats.errors.NoRespondersError as error:
            raise _NotDelivered from error
        except TimeoutError as error:
            raise _NotAnswered from error
        except (nats.errors.Error, OSError) as error:
            log.warning("request_failed", subject=subject, error=repr(error))
            raise _silent(message, "could not be asked") from error
        return reply.data

    async def _on_error(self, error: Exception) -> None:
        if "authorization violation" not in str(error).lower() or self.credentials is None:
            log.warning("nats_error", error=repr(error))
            return
        log.error("credentials_refused", user=self.user, credentials=self.credentials)
