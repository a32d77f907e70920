"""History: series and reports of results, events of the gateway's own log."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from litestar.params import FromQuery, JSONBody, QueryParameter

from schemas.errors import ErrorCode
from schemas.gateway import CustomEvent, CustomEventRequest, EventList, Published
from schemas.results import GetReport, GetSeries, ReportView, SeriesMetric, SeriesView
from services.gateway.bodies import StrictBody
from services.gateway.eventlog import EventFilter
from services.gateway.routes.common import (
    Caller,
    IdempotencyKey,
    OnNode,
    TheGateway,
    command_id_of,
    get,
    post,
)
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.outbox import stage


class Range(StrEnum):
    """How far back a history reaches."""

    HALF_HOUR = "30m"
    HOUR = "1h"
    SIX_HOURS = "6h"
    TWELVE_HOURS = "12h"
    DAY = "24h"
    TWO_DAYS = "2d"
    WEEK = "7d"


LENGTHS: Final = {
    Range.HALF_HOUR: timedelta(minutes=30),
    Range.HOUR: timedelta(hours=1),
    Range.SIX_HOURS: timedelta(hours=6),
    Range.TWELVE_HOURS: timedelta(hours=12),
    Range.DAY: timedelta(hours=24),
    Range.TWO_DAYS: timedelta(days=2),
    Range.WEEK: timedelta(days=7),
}
SERIES_TIMEOUT_SECONDS: Final = 10.0


@get("/series")
async def get_series(
    gateway: TheGateway,
    metric: FromQuery[SeriesMetric] = SeriesMetric.UTILIZATION_PERCENT,
    last: Annotated[Range | None, QueryParameter(name="range")] = None,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
    node_id: OnNode = None,
    device_uuid: FromQuery[str | None] = None,
    experiment_id: FromQuery[UUID | None] = None,
    points: Annotated[int, QueryParameter(ge=1, le=5000)] = 300,
) -> SeriesView:
    """A metric's history per device in at most `points` buckets.

    The last hour unless `range`, or `start_at` and `end_at`, say otherwise; of an experiment, all
    of its own samples.
    """
    end = end_at or utcnow()
    length = LENGTHS[last or (Range.WEEK if experiment_id else Range.HOUR)]
    query = GetSeries(
        metric=metric,
        start_at=start_at or _before(end, length),
        end_at=end,
        node_id=node_id,
        device_uuid=device_uuid,
        experiment_id=experiment_id,
        points=points,
    )
    return await gateway.ask(query, SeriesView, timeout_seconds=SERIES_TIMEOUT_SECONDS)


@get("/reports/usage")
async def get_usage(
    gateway: TheGateway,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
) -> ReportView:
    """GPU hours and energy per namespace; of the last week by default."""
    end = end_at or utcnow()
    query = GetReport(start_at=start_at or _before(end, LENGTHS[Range.WEEK]), end_at=end)
    return await gateway.ask(query, ReportView, timeout_seconds=SERIES_TIMEOUT_SECONDS)


@get("/events")
async def list_events(
    gateway: TheGateway,
    after: Annotated[int, QueryParameter(ge=0)] = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100,
    event_type: Annotated[str | None, QueryParameter(name="type")] = None,
    task_id: FromQuery[UUID | None] = None,
    experiment_id: FromQuery[UUID | None] = None,
) -> EventList:
    """Events after a cursor, oldest first; `type` is a comma-separated list."""
    wanted = event_filter(event_type, task_id, experiment_id)
    events, cursor = await gateway.log.read(after, wanted, limit)
    return EventList(events=tuple(events), cursor=cursor)


@post("/events", status_code=202, dto=StrictBody[CustomEventRequest], return_dto=None)
async def publish_event(
    data: JSONBody[CustomEventRequest],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Published:
    """Publish an event of one's own."""
    message_id = command_id_of(idempotency_key)
    event = CustomEvent(
        message_id=message_id,
        occurred_at=utcnow(),
        revision=0,
        name=data.name,
        namespace=identity.namespace_for(data.namespace),
        data=data.data,
    )
    async with gateway.database.transaction() as connection:
        await stage(connection, event)
    return Published(message_id=message_id)


def _before(end: datetime, length: timedelta) -> datetime:
    try:
        return end - length
    except OverflowError as error:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, "expected a time that others precede", path="query.end_at"
        ) from error


def event_filter(
    event_type: str | None, task_id: UUID | None, experiment_id: UUID | None
) -> EventFilter:
    """What a client asked for."""
    return EventFilter(
        types=tuple(part.strip() for part in event_type.split(",")) if event_type else (),
        task_id=str(task_id) if task_id else None,
        experiment_id=str(experiment_id) if experiment_id else None,
    )


ROUTES = [get_series, get_usage, list_events, publish_event]
