"""Reports on GPU time, of the last week by default."""

from datetime import datetime, timedelta
from typing import Annotated, Final, TypedDict
from uuid import UUID

from litestar.params import FromPath, FromQuery, QueryParameter

from schemas.base import Namespace
from schemas.errors import ErrorCode
from schemas.reports import (
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
from schemas.scheduler_idle import IDLE_GRACE_SECONDS, IDLE_WINDOW_SECONDS
from services.gateway.context import Gateway
from services.gateway.domain.access import Identity
from services.gateway.routes.common import Caller, InNamespace, TheGateway, get
from shared.clock import utcnow
from shared.errors import RefusedError

TIMEOUT_SECONDS: Final = 30.0
WEEK: Final = timedelta(days=7)


IdleSeconds = Annotated[float, QueryParameter(ge=60, le=31_536_000)]


class _Range(TypedDict):
    start_at: datetime
    end_at: datetime
    namespace: Namespace | None


@get("/reports/gpu-time")
async def get_gpu_time(
    gateway: TheGateway,
    identity: Caller,
    by: FromQuery[UsageBy] = UsageBy.NAMESPACE,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
    namespace: InNamespace = None,
) -> UsageView:
    """GPU hours, energy and cost, against as long a time before; what became of all GPU time."""
    query = GetUsage(by=by, **_range(start_at, end_at, identity.namespace_to_read(namespace)))
    return await gateway.bus.query(query, UsageView, timeout_seconds=TIMEOUT_SECONDS)


@get("/reports/waste")
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


@get("/reports/idle")
async def get_idle(
    gateway: TheGateway,
    identity: Caller,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
    namespace: InNamespace = None,
    window_seconds: IdleSeconds = IDLE_WINDOW_SECONDS,
    grace_seconds: IdleSeconds = IDLE_GRACE_SECONDS,
) -> IdleView:
    """What releasing idle reservations would have freed; changes nothing."""
    query = GetIdle(
        **_range(start_at, end_at, identity.namespace_to_read(namespace)),
        window_seconds=window_seconds,
        grace_seconds=grace_seconds,
    )
    return await gateway.bus.query(query, IdleView, timeout_seconds=TIMEOUT_SECONDS)


@get("/reports/waits")
async def get_waits(
    gateway: TheGateway,
    identity: Caller,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
    namespace: InNamespace = None,
) -> WaitsView:
    """How long requests waited for GPUs."""
    query = GetWaits(**_range(start_at, end_at, identity.namespace_to_read(namespace)))
    return await gateway.bus.query(query, WaitsView, timeout_seconds=TIMEOUT_SECONDS)


@get("/reports/failures")
async def get_failures(
    gateway: TheGateway,
    identity: Caller,
    start_at: FromQuery[datetime | None] = None,
    end_at: FromQuery[datetime | None] = None,
    namespace: InNamespace = None,
) -> FailuresView:
    """Why attempts and reservations ended otherwise than planned."""
    query = GetFailures(**_range(start_at, end_at, identity.namespace_to_read(namespace)))
    return await gateway.bus.query(query, FailuresView, timeout_seconds=TIMEOUT_SECONDS)


@get("/reports/waterfall/{subject_id:uuid}")
async def get_waterfall(
    gateway: TheGateway, identity: Caller, subject_id: FromPath[UUID]
) -> WaterfallView:
    """Where the GPU time of a task or an experiment went."""
    if not identity.reads_everything:
        await _require_readable(gateway, identity, subject_id)
    query = GetWaterfall(subject_id=subject_id)
    return await gateway.bus.query(query, WaterfallView, timeout_seconds=TIMEOUT_SECONDS)


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
    try:
        start = start_at or end - WEEK
    except OverflowError as error:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, "expected a time that others precede", path="query.end_at"
        ) from error
    return {"start_at": start, "end_at": end, "namespace": namespace}
