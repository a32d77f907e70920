"""History: series and reports of results, events of the gateway's own log."""

import re
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from schemas.errors import ErrorCode
from schemas.gateway import endpoints
from schemas.gateway.views import CustomEvent, CustomEventRequest, EventList, Published
from schemas.gpus.kinds import GpuKind
from schemas.results.engine_metrics import EngineSeriesView, GetEngineSeries
from schemas.results.measurements import GetReport, GetRequests, ReportView, RequestsView
from schemas.results.series import GetSeries, ListPods, PodList, SeriesBy, SeriesMetric, SeriesView
from services.gateway.context import Gateway
from services.gateway.domain.access import Identity
from services.gateway.domain.event_filter import EventFilter
from services.gateway.routes.common import (
    Caller,
    IdempotencyKey,
    InNamespace,
    OnNode,
    TheGateway,
    command_id_of,
    route,
    whole_number,
)
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.postgres.outbox import stage


class Range(StrEnum):
    """How far back a history reaches."""

    HALF_HOUR = "30m"
    HOUR = "1h"
    SIX_HOURS = "6h"
    TWELVE_HOURS = "12h"
    DAY = "24h"
    TWO_DAYS = "2d"
    WEEK = "7d"

    @property
    def length(self) -> timedelta:
        unit = {"m": "minutes", "h": "hours", "d": "days"}[self.value[-1]]
        return timedelta(**{unit: int(self.value[:-1])})


SERIES_TIMEOUT_SECONDS: Final = 10.0
# Types of later releases are in the log as well, so that only their form can be checked.
EVENT_TYPE: Final = re.compile(r"[a-z_]+\.[a-z_]+")


@route(endpoints.GET_SERIES)
async def get_series(
    gateway: TheGateway,
    identity: Caller,
    metric: FromQuery[SeriesMetric] = SeriesMetric.UTILIZATION_PERCENT,
    last: Annotated[Range | None, QueryParameter(name="range")] = None,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
    node_id: OnNode = None,
    device_uuid: FromQuery[str | None] = None,
    experiment_id: FromQuery[UUID | None] = None,
    pod_namespace: FromQuery[str | None] = None,
    pod: FromQuery[str | None] = None,
    gpu_model: FromQuery[str | None] = None,
    kind_of_gpu: FromQuery[GpuKind | None] = None,
    points: Annotated[int, QueryParameter(ge=1, le=5000)] = 300,
    by: FromQuery[SeriesBy] = SeriesBy.GPU,
    namespace: InNamespace = None,
) -> SeriesView:
    """A metric's history in at most `points` buckets, per device, or `by` node, pod or fleet.

    The last hour unless `range`, or `start_at` and `end_at`, say otherwise; of an experiment, all
    of its own samples, and neither by pod nor of a namespace; of pods of Kubernetes, or of what a
    `namespace` had, the whole minutes in which they had the device. `gpu_model` is a part of the
    name; `kind_of_gpu` leaves whole GPUs, MIG instances, or what was handed out in parts in that
    way. A pod's `reading` says whether it is its own use or, for some of the time, the whole GPU's.
    """
    if experiment_id is not None:
        await require_readable(gateway, identity, experiment_id)
    end = end_at or utcnow()
    length = (last or (Range.WEEK if experiment_id else Range.HOUR)).length
    query = GetSeries(
        metric=metric,
        start_at=start_at or end - length,
        end_at=end,
        node_id=node_id,
        device_uuid=device_uuid,
        experiment_id=experiment_id,
        pod_namespace=pod_namespace,
        pod=pod,
        gpu_model=gpu_model,
        kind_of_gpu=kind_of_gpu,
        points=points,
        by=by,
        namespace=None if namespace is None else identity.namespace_to_read(namespace),
        readable=identity.readable,
    )
    return await gateway.bus.query(query, SeriesView, timeout_seconds=SERIES_TIMEOUT_SECONDS)


@route(endpoints.LIST_PODS)
async def list_pods(
    gateway: TheGateway,
    identity: Caller,
    last: Annotated[Range | None, QueryParameter(name="range")] = None,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
    node_id: OnNode = None,
    kind_of_gpu: FromQuery[GpuKind | None] = None,
    namespace: InNamespace = None,
) -> PodList:
    """The pods of Kubernetes that had GPUs, of the last hour by default.

    Those of the caller's namespaces: a pod of a reservation is of its namespace, another of that of
    its own name.
    """
    end = end_at or utcnow()
    query = ListPods(
        start_at=start_at or end - (last or Range.HOUR).length,
        end_at=end,
        node_id=node_id,
        kind_of_gpu=kind_of_gpu,
        namespace=None if namespace is None else identity.namespace_to_read(namespace),
        readable=identity.readable,
    )
    return await gateway.bus.query(query, PodList, timeout_seconds=SERIES_TIMEOUT_SECONDS)


@route(endpoints.GET_REQUESTS)
async def get_requests(
    experiment_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    level: Annotated[int, whole_number(0)] = 0,
) -> RequestsView:
    """The measured requests of one level, as columns; `level` counts from 0."""
    await require_readable(gateway, identity, experiment_id)
    query = GetRequests(experiment_id=experiment_id, level=level)
    return await gateway.bus.query(query, RequestsView)


@route(endpoints.GET_ENGINE_SERIES)
async def get_engine_series(
    experiment_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
    points: Annotated[int, QueryParameter(ge=1, le=5000)] = 300,
) -> EngineSeriesView:
    """Return what the engine of the newest attempt reported, in at most `points` buckets.

    That is its requests that run and wait, KV cache, preemptions, prefix hits, tokens, accepted
    drafts. Empty for an engine without metrics, or as long as none have come.
    """
    await require_readable(gateway, identity, experiment_id)
    query = GetEngineSeries(
        experiment_id=experiment_id, start_at=start_at, end_at=end_at, points=points
    )
    return await gateway.bus.query(query, EngineSeriesView, timeout_seconds=SERIES_TIMEOUT_SECONDS)


@route(endpoints.GET_USAGE)
async def get_usage(
    gateway: TheGateway,
    identity: Caller,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
) -> ReportView:
    """GPU hours and energy of each of the caller's namespaces; of the last week by default."""
    end = end_at or utcnow()
    query = GetReport(start_at=start_at or end - Range.WEEK.length, end_at=end)
    report = await gateway.bus.query(query, ReportView, timeout_seconds=SERIES_TIMEOUT_SECONDS)
    return ReportView(rows=tuple(row for row in report.rows if identity.reads(row.namespace)))


@route(endpoints.LIST_EVENTS)
async def list_events(
    gateway: TheGateway,
    identity: Caller,
    after: Annotated[int, whole_number(0)] = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100,
    event_type: Annotated[str | None, QueryParameter(name="type")] = None,
    task_id: FromQuery[UUID | None] = None,
    experiment_id: FromQuery[UUID | None] = None,
    reservation_id: FromQuery[UUID | None] = None,
) -> EventList:
    """Events after a cursor, oldest first; `type` is a comma-separated list."""
    criteria = event_filter(identity, event_type, task_id, experiment_id, reservation_id)
    events, cursor = await gateway.log.read(after, criteria, limit)
    return EventList(events=tuple(events), cursor=cursor)


@route(endpoints.PUBLISH_EVENT)
async def publish_event(
    data: JSONBody[CustomEventRequest],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Published:
    """Publish an event of one's own."""
    namespace = identity.namespace_for(data.namespace)
    message_id = command_id_of(idempotency_key, identity, namespace)
    event = CustomEvent(
        message_id=message_id,
        occurred_at=utcnow(),
        revision=0,
        name=data.name,
        namespace=namespace,
        data=data.data,
    )
    async with gateway.database.transaction() as connection:
        await stage(connection, event)
    return Published(message_id=message_id)


async def require_readable(gateway: Gateway, identity: Identity, experiment_id: UUID) -> None:
    """Raises RefusedError unless it may be seen by this caller."""
    if not identity.reads_everything:
        await gateway.experiment(experiment_id, identity)


def event_filter(
    identity: Identity,
    event_type: str | None,
    task_id: UUID | None,
    experiment_id: UUID | None,
    reservation_id: UUID | None,
) -> EventFilter:
    """Raises RefusedError for what cannot be a type of events."""
    types = tuple(part.strip() for part in event_type.split(",")) if event_type else ()
    for name in types:
        if not EVENT_TYPE.fullmatch(name):
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"expected types such as orchestrator.task_started, found {name!r}",
                path="query.type",
            )
    return EventFilter(
        types=types,
        readable=identity.readable,
        names_of=identity.names_of,
        task_id=str(task_id) if task_id else None,
        experiment_id=str(experiment_id) if experiment_id else None,
        reservation_id=str(reservation_id) if reservation_id else None,
    )
