"""Whether the platform answers, and the gateway's own metrics."""

import asyncio
from datetime import timedelta
from typing import Any, Final

from litestar import MediaType, Response, get
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from schemas.base import Query
from schemas.errors import ErrorCode
from schemas.executor.running import ListRunning, RunningAttempts
from schemas.gateway.views import Health
from schemas.orchestrator.views import ListTasks, TaskList
from schemas.results.measurements import GetReport, ReportView
from schemas.scheduler.views import AllocationMap, GetAllocationMap
from services.gateway.context import Gateway
from services.gateway.metrics import text_of
from services.gateway.routes.common import PROBLEMS, TheGateway
from shared.clock import utcnow
from shared.disk import is_full, room_at
from shared.errors import RefusedError, UnavailableError
from shared.waiting import within

ANSWER_SECONDS: Final = 2.0


@get("/healthz")
async def is_alive() -> Health:
    """This process answers."""
    return Health(ready=True)


@get("/readyz", responses=PROBLEMS)
async def is_ready(gateway: TheGateway) -> Health:
    """Bus, Postgres and every service answer, and the disk has room; if not, `details.missing`
    names what is missing.
    """
    now = utcnow()
    report = GetReport(start_at=now - timedelta(seconds=1), end_at=now)
    checks = {
        "postgres": _postgres(gateway),
        "scheduler": _answers(gateway, GetAllocationMap(), AllocationMap),
        "orchestrator": _answers(gateway, ListTasks(limit=1), TaskList),
        "results": _answers(gateway, report, ReportView),
        "executor": _executors(gateway),
    }
    found = dict(zip(checks, await asyncio.gather(*checks.values()), strict=True))
    found = {
        "bus": gateway.bus.is_connected,
        **found,
        "telemetry": any(not latest.is_stale for latest in gateway.live.latest().values()),
    }
    silent = [name for name, answers in found.items() if not answers]
    problems = [f"no answer from {', '.join(silent)}"] if silent else []
    if full := is_full(gateway.data_dir):
        problems.append(f"the disk is full: {room_at(gateway.data_dir)}")
    if problems:
        raise RefusedError(
            ErrorCode.UNAVAILABLE,
            "; ".join(problems),
            details={"missing": [*silent, "disk"] if full else silent},
        )
    return Health(ready=True)


async def _answers(gateway: Gateway, query: Query, view: type[Any]) -> bool:
    try:
        await gateway.bus.query(query, view, timeout_seconds=ANSWER_SECONDS)
    except (UnavailableError, RefusedError):
        return False
    return True


async def _postgres(gateway: Gateway) -> bool:
    try:
        async with within(ANSWER_SECONDS), gateway.database.transaction() as connection:
            return bool(await connection.fetchval("SELECT true"))
    except (UnavailableError, TimeoutError):
        return False


async def _executors(gateway: Gateway) -> bool:
    """Whether any of those that have reported answers."""
    answers = (
        _answers(gateway, ListRunning(executor_id=executor_id), RunningAttempts)
        for executor_id in gateway.live.executors
    )
    return any(await asyncio.gather(*answers))


@get("/metrics", media_type=MediaType.TEXT)
async def metrics(gateway: TheGateway) -> Response[bytes]:
    """The platform's metrics, as Prometheus reads them."""
    return Response(await text_of(gateway), media_type=CONTENT_TYPE_PLAIN_0_0_4)
