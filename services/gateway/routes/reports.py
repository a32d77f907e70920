"""Reports on GPU time, of the last week by default."""

from datetime import datetime, timedelta
from typing import Annotated, Final, TypedDict
from uuid import UUID

from litestar import Response
from litestar.params import FromPath, FromQuery, QueryParameter

from schemas.base import Namespace
from schemas.errors import ErrorCode
from schemas.gateway import endpoints
from schemas.orchestrator.views import ListExperiments
from schemas.results.reports import (
    FailuresView,
    GetFailures,
    GetIdle,
    GetUsage,
    GetWaits,
    GetWaste,
    GetWaterfall,
    IdleView,
    UsageBy,
    UsageView,
    WaitsView,
    WasteView,
    WaterfallView,
)
from schemas.scheduler.idle import IDLE_GRACE_SECONDS, IDLE_WINDOW_SECONDS
from schemas.task.report import TaskReport
from services.gateway.context import Gateway
from services.gateway.domain.access import Identity
from services.gateway.domain.task_report.markdown import markdown
from services.gateway.domain.task_report.report import task_report
from services.gateway.routes.common import Caller, InNamespace, TheGateway, or_none, route
from services.gateway.routes.tasks.joined_experiments import list_details
from services.gateway.routes.tasks.tasks import MAX_EXPERIMENTS, find_task
from shared.clock import utcnow
from shared.errors import RefusedError, UnavailableError

TIMEOUT_SECONDS: Final = 30.0
WEEK: Final = timedelta(days=7)
MARKDOWN: Final = "text/markdown"


IdleSeconds = Annotated[float, QueryParameter(ge=60, le=31_536_000)]


class _Range(TypedDict):
    start_at: datetime
    end_at: datetime
    namespace: Namespace | None


@route(endpoints.GET_GPU_TIME)
async def get_gpu_time(
    gateway: TheGateway,
    identity: Caller,
    by: FromQuery[UsageBy] = UsageBy.NAMESPACE,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
    namespace: InNamespace = None,
    daily: FromQuery[bool] = False,
) -> UsageView:
    """GPU hours, energy and cost, against as long a time before; what became of all GPU time. If
    `daily`, also the hours of each day of UTC.
    """
    period = _range(start_at, end_at, identity.namespace_to_read(namespace))
    query = GetUsage(by=by, daily=daily, **period)
    return await gateway.bus.query(query, UsageView, timeout_seconds=TIMEOUT_SECONDS)


@route(endpoints.GET_WASTE)
async def get_waste(
    gateway: TheGateway,
    identity: Caller,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
    namespace: InNamespace = None,
) -> WasteView:
    """Reservations that were held and hardly used."""
    query = GetWaste(**_range(start_at, end_at, identity.namespace_to_read(namespace)))
    return await gateway.bus.query(query, WasteView, timeout_seconds=TIMEOUT_SECONDS)


@route(endpoints.GET_IDLE)
async def get_idle(
    gateway: TheGateway,
    identity: Caller,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
    namespace: InNamespace = None,
    window_seconds: IdleSeconds = IDLE_WINDOW_SECONDS,
    grace_seconds: IdleSeconds = IDLE_GRACE_SECONDS,
) -> IdleView:
    """Return what releasing idle reservations would have freed; changes nothing."""
    query = GetIdle(
        **_range(start_at, end_at, identity.namespace_to_read(namespace)),
        window_seconds=window_seconds,
        grace_seconds=grace_seconds,
    )
    return await gateway.bus.query(query, IdleView, timeout_seconds=TIMEOUT_SECONDS)


@route(endpoints.GET_WAITS)
async def get_waits(
    gateway: TheGateway,
    identity: Caller,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
    namespace: InNamespace = None,
) -> WaitsView:
    """Return how long requests waited for GPUs."""
    query = GetWaits(**_range(start_at, end_at, identity.namespace_to_read(namespace)))
    return await gateway.bus.query(query, WaitsView, timeout_seconds=TIMEOUT_SECONDS)


@route(endpoints.GET_FAILURES)
async def get_failures(
    gateway: TheGateway,
    identity: Caller,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
    namespace: InNamespace = None,
) -> FailuresView:
    """Return why attempts and reservations ended otherwise than planned."""
    query = GetFailures(**_range(start_at, end_at, identity.namespace_to_read(namespace)))
    return await gateway.bus.query(query, FailuresView, timeout_seconds=TIMEOUT_SECONDS)


@route(endpoints.GET_TASK_REPORT)
async def get_task_report(
    gateway: TheGateway, identity: Caller, task_id: FromPath[UUID]
) -> TaskReport:
    """Return what a task found out, of what is measured so far."""
    return await _task_report(gateway, identity, task_id)


@route(endpoints.GET_TASK_REPORT_AS_MARKDOWN, media_type=MARKDOWN)
async def get_task_report_as_markdown(
    gateway: TheGateway, identity: Caller, task_id: FromPath[UUID]
) -> Response[str]:
    """The same for people."""
    report = await _task_report(gateway, identity, task_id)
    return Response(markdown(report), media_type=MARKDOWN)


@route(endpoints.GET_WATERFALL)
async def get_waterfall(
    gateway: TheGateway, identity: Caller, subject_id: FromPath[UUID]
) -> WaterfallView:
    """Return where the GPU time of a task or an experiment went."""
    if not identity.reads_everything:
        await _require_readable(gateway, identity, subject_id)
    query = GetWaterfall(subject_id=subject_id)
    return await gateway.bus.query(query, WaterfallView, timeout_seconds=TIMEOUT_SECONDS)


async def _task_report(gateway: Gateway, identity: Identity, task_id: UUID) -> TaskReport:
    task = await find_task(gateway, identity, task_id)
    if task.imported_at is None:
        listing = ListExperiments(task_id=task_id, limit=MAX_EXPERIMENTS)
        experiments = (await list_details(gateway, listing, monitoring=False)).experiments
    else:
        experiments = await gateway.imports.experiments(task_id)
    waterfall, missing = None, []
    try:
        query = GetWaterfall(subject_id=task_id)
        waterfall_query = gateway.bus.query(query, WaterfallView, timeout_seconds=TIMEOUT_SECONDS)
        waterfall = await or_none(waterfall_query)
    except UnavailableError:
        missing.append("results")
    return task_report(task, experiments, waterfall, missing=missing)


async def _require_readable(gateway: Gateway, identity: Identity, subject_id: UUID) -> None:
    """Raises RefusedError for what is neither a task nor an experiment that this caller sees."""
    try:
        await gateway.task(subject_id, identity)
    except RefusedError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        await gateway.experiment(subject_id, identity)


def _range(start_at: datetime | None, end_at: datetime | None, namespace: str | None) -> _Range:
    end = end_at or utcnow()
    return {"start_at": start_at or end - WEEK, "end_at": end, "namespace": namespace}
