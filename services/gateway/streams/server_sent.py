"""The streams of the WebSockets as Server-Sent Events, which need nothing but HTTP."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Final
from uuid import UUID

import msgspec
from litestar import Router
from litestar.params import FromQuery, HeaderParameter, QueryParameter
from litestar.response import Stream

from schemas.gateway import endpoints
from schemas.gateway.views import StoredEvent
from services.gateway.context import Gateway
from services.gateway.domain.event_filter import EventFilter
from services.gateway.routes.common import (
    Caller,
    InNamespace,
    OnNode,
    Rate,
    TheGateway,
    refuse_bad_parameters,
    route,
    whole_number,
)
from services.gateway.routes.history import event_filter
from services.gateway.shared_json import SharedJson
from services.gateway.streams.sockets import event_messages, metrics_filter, metrics_messages
from shared.errors import UnavailableError
from shared.waiting import cancel_and_wait

SILENT_SECONDS: Final = 15.0  # then a comment shows that we are here, and finds out who has gone
COMMENT: Final = b":\n\n"
_encode = msgspec.json.Encoder().encode


@route(endpoints.FOLLOW_METRICS)
async def follow_metrics(
    gateway: TheGateway,
    identity: Caller,
    node_id: OnNode = None,
    device_uuid: FromQuery[str | None] = None,
    experiment_id: FromQuery[UUID | None] = None,
    task_id: FromQuery[UUID | None] = None,
    namespace: InNamespace = None,
    rate: Rate = None,
) -> Stream:
    """Stream what `/ws/metrics` sends."""
    criteria = await metrics_filter(
        gateway, identity, node_id, device_uuid, experiment_id, task_id, namespace
    )
    return _stream(metrics_messages(gateway, criteria, rate))


@route(endpoints.FOLLOW_EVENTS)
async def follow_events(
    gateway: TheGateway,
    identity: Caller,
    after: Annotated[int | None, whole_number(0)] = None,
    last_event_id: Annotated[int | None, HeaderParameter(name="Last-Event-ID", ge=0)] = None,
    event_type: Annotated[str | None, QueryParameter(name="type")] = None,
    task_id: FromQuery[UUID | None] = None,
    experiment_id: FromQuery[UUID | None] = None,
    reservation_id: FromQuery[UUID | None] = None,
) -> Stream:
    """Stream what `/ws/events` sends; a browser that reconnects goes on after the last id it has
    seen.
    """
    criteria = event_filter(identity, event_type, task_id, experiment_id, reservation_id)
    start = after if last_event_id is None else last_event_id
    return _stream(_events(gateway, criteria, start))


async def _events(
    gateway: Gateway, criteria: EventFilter, after_id: int | None
) -> AsyncGenerator[object, None]:
    with gateway.live.watching() as watcher:
        async with aclosing(event_messages(gateway, watcher, criteria, after_id)) as messages:
            async for message in messages:
                yield message


def _stream(messages: AsyncGenerator[object, None]) -> Stream:
    return Stream(
        _lines(messages), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


async def _lines(messages: AsyncGenerator[object, None]) -> AsyncIterator[bytes]:
    """Ends where an owner is away: the client asks again, after what it has."""
    yield COMMENT  # so that the client knows that it is served
    async with aclosing(messages):
        following = asyncio.ensure_future(anext(messages))
        try:
            while True:
                done, _ = await asyncio.wait({following}, timeout=SILENT_SECONDS)
                if not done:
                    yield COMMENT
                    continue
                message = following.result()
                following = asyncio.ensure_future(anext(messages))
                number = f"id: {message.cursor}\n" if isinstance(message, StoredEvent) else ""
                data = message.data if isinstance(message, SharedJson) else _encode(message)
                yield number.encode() + b"data: " + data + b"\n\n"
        except (StopAsyncIteration, UnavailableError):
            return
        finally:
            await cancel_and_wait(following)


ROUTES = [
    Router(
        "/",
        route_handlers=[follow_metrics, follow_events],
        guards=[refuse_bad_parameters],
        include_in_schema=False,  # tools that try every route would wait for its end
    )
]
