"""A service's table of routes: which handler gets which message, and how it is subscribed."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, Union

import msgspec
from faststream import AckPolicy
from faststream.nats import JStream, NatsRoute, PullSub
from nats.js.api import AckPolicy as JetStreamAck
from nats.js.api import ConsumerConfig, DeliverPolicy

from schemas.base import PREFIX, Command, Event, Message, Query, pattern_for, sender_subject
from schemas.errors import Reply
from shared.messaging.codec import TypedCodec
from shared.messaging.concurrent_requests import ConcurrentRequests
from shared.messaging.permissions import is_signed
from shared.messaging.senders import with_proved_requester
from shared.messaging.streams import EVENTS

C = TypeVar("C", bound=Command)
Q = TypeVar("Q", bound=Query)

Handler = Callable[[Any], Awaitable[Any]]

PULL_SECONDS: Final = 1.0  # a pull request lost with its server is made again after this
ACK_WAIT_SECONDS: Final = 30.0


@dataclass(slots=True, kw_only=True)
class DurableRoute:
    """A durable consumer of the EVENTS stream, declared before its route subscribes."""

    durable: str
    subjects: list[str]

    def consumer(self) -> ConsumerConfig:
        """The server's side of the route. `max_deliver` is unlimited: settling is ours."""
        return ConsumerConfig(
            durable_name=self.durable,
            filter_subjects=self.subjects,
            ack_policy=JetStreamAck.EXPLICIT,
            ack_wait=ACK_WAIT_SECONDS,
            deliver_policy=DeliverPolicy.ALL,
            max_ack_pending=1000,
        )


@dataclass(slots=True)
class Origin:
    """Whether messages come from a server that holds its users to subjects."""

    has_users: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """One line of a service's table of routes; `durable` only for events of the stream, `signed`
    for commands whose subject tells who sends them, `concurrent` in place of both where many are
    served at once. The bus that includes it fills in `origin`.
    """

    nats: NatsRoute | None = None
    durable: DurableRoute | None = None
    signed: NatsRoute | None = None
    concurrent: tuple[ConcurrentRequests, ...] = ()
    origin: Origin = field(default_factory=Origin)


def function_of(handler: Handler) -> Handler:
    """The same as a plain function. FastStream reads the source of every handler, twice, and that
    of a dataclass's method is the text of all it holds: half of what a service's start cost.
    """

    async def handle(message: Any) -> Any:
        return await handler(message)

    return handle


def command_route(
    handler: Callable[[C], Awaitable[Reply]],
    message: type[C],
    *,
    key: str | None = None,
    workers: int = 1,
) -> Route:
    """Commands of one kind, shared by all processes of the service; `key`: one node's alone.

    One after another, unless there are more `workers`.
    """
    return _request_route(handler, message, key, workers)


def query_route(
    handler: Callable[[Q], Awaitable[msgspec.Struct]],
    message: type[Q],
    *,
    key: str | None = None,
    workers: int = 1,
) -> Route:
    """Requests of one kind of query. The handler raises RefusedError to refuse."""
    return _request_route(handler, message, key, workers)


def _request_route(
    handler: Handler, message: type[Message], key: str | None, workers: int
) -> Route:
    pattern, origin = pattern_for(message, key), Origin()

    async def handle(message: Any) -> Any:
        if origin.has_users and isinstance(message, Command):
            message = with_proved_requester(message)
        return await handler(message)

    codec = TypedCodec(message)
    by_sender = [sender_subject(pattern, "*")] if is_signed(message) else []
    if workers > 1:
        return Route(
            concurrent=tuple(
                ConcurrentRequests(subject, pattern, handle, codec, workers)
                for subject in (pattern, *by_sender)
            ),
            origin=origin,
        )
    by_pattern, *signed = (
        NatsRoute(function_of(handle), subject=subject, queue=pattern, codec=codec)
        for subject in (pattern, *by_sender)
    )
    return Route(by_pattern, signed=signed[0] if signed else None, origin=origin)


def event_route(handler: Handler, *events: type[Event], durable: str) -> Route:
    """Events of these types from the stream, at least once, in order while nothing fails.

    `durable` is `<service>_<handler>` and must not change between releases.
    """
    route = NatsRoute(
        function_of(handler),
        subject=f"{PREFIX}.evt.>",
        stream=JStream(str(EVENTS.name), declare=False),
        durable=durable,
        pull_sub=PullSub(batch_size=1, timeout=PULL_SECONDS),
        ack_policy=AckPolicy.MANUAL,
        codec=TypedCodec(Union[events]),  # noqa: UP007  # the union is computed
    )
    return Route(
        route,
        DurableRoute(durable=durable, subjects=[pattern_for(event) for event in events]),
    )
