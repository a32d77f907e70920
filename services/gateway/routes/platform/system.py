"""Whether the platform answers, and the gateway's own metrics."""

import asyncio
from datetime import timedelta
from typing import Any, Final

from litestar import MediaType, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from schemas.base import Query
from schemas.errors import ErrorCode
from schemas.executor.running import ListRunning, RunningAttempts
from schemas.gateway import endpoints
from schemas.gateway.health import Health
from schemas.orchestrator.views import ListTasks, TaskList
from schemas.results.measurements import GetReport, ReportView
from schemas.scheduler.views import ListReservations, ReservationList
from services.gateway.certificates import read_ends
from services.gateway.context import Gateway
from services.gateway.domain.certificate_ends import find_ending
from services.gateway.domain.postgres_health import PostgresState, find_warnings
from services.gateway.ledger.postgres_state import read_postgres_state
from services.gateway.metrics import text_of
from services.gateway.routes.common import TheGateway, route
from shared.clock import utcnow
from shared.disk import is_full, room_at
from shared.errors import RefusedError, UnavailableError
from shared.waiting import within

ANSWER_TIMEOUT_SECONDS: Final = 2.0
ASKED_AT_ONCE: Final = 16


@route(endpoints.IS_ALIVE, responses=None)
async def is_alive() -> Health:
    """This process answers."""
    return Health(ready=True)


@route(endpoints.IS_READY)
async def is_ready(gateway: TheGateway) -> Health:
    """Bus, Postgres and every service answer, events flow, and the disk has room; if not,
    `details.missing` names what is missing. `warnings` are of what works and could be lost: a
    standby that is not synchronous, or late, a stream without all its replicas, and a certificate
    that ends within 14 days.
    """
    now = utcnow()
    report = GetReport(start_at=now - timedelta(seconds=1), end_at=now)
    checks = {
        "scheduler": _answers(gateway, ListReservations(limit=1), ReservationList),
        "orchestrator": _answers(gateway, ListTasks(limit=1), TaskList),
        "results": _answers(gateway, report, ReportView),
        "executor": _executors(gateway),
    }
    postgres, answers = await asyncio.gather(_postgres(gateway), asyncio.gather(*checks.values()))
    results = {
        "bus": gateway.bus.is_connected,
        "postgres": postgres is not None,
        **dict(zip(checks, answers, strict=True)),
        "telemetry": any(not latest.is_stale for latest in gateway.live.latest().values()),
    }
    silent = [name for name, answers in results.items() if not answers]
    problems = [f"no answer from {', '.join(silent)}"] if silent else []
    missing = list(silent)
    if postgres is not None and not postgres.takes_writes:
        problems.append("postgres takes no writes: a standby, or set to be read-only")
        missing.append("postgres_writes")
    watch = gateway.bus_watch
    if streams := watch.silent_streams:
        problems.append(f"streams of the bus do not answer: {', '.join(streams)}")
        missing.append("streams")
    if consumers := watch.silent_consumers:
        problems.append(f"consumers get nothing though events wait: {', '.join(consumers)}")
        missing.append("consumers")
    if is_full(gateway.data_dir):
        problems.append(f"the disk is full: {room_at(gateway.data_dir)}")
        missing.append("disk")
    if problems:
        raise RefusedError(
            ErrorCode.UNAVAILABLE,
            "; ".join(problems),
            details={"missing": missing},
        )
    of_postgres = find_warnings(postgres) if postgres is not None else ()
    ending = find_ending(await read_ends(gateway), now)
    return Health(ready=True, warnings=(*of_postgres, *watch.warnings(), *ending))


async def _answers(gateway: Gateway, query: Query, view: type[Any]) -> bool:
    try:
        await gateway.bus.query(query, view, timeout_seconds=ANSWER_TIMEOUT_SECONDS)
    except (UnavailableError, RefusedError):
        return False
    return True


async def _postgres(gateway: Gateway) -> PostgresState | None:
    """Return how it stands; None if it does not answer."""
    try:
        async with within(ANSWER_TIMEOUT_SECONDS), gateway.database.statements() as connection:
            return await read_postgres_state(connection)
    except (UnavailableError, TimeoutError):
        return None


async def _executors(gateway: Gateway) -> bool:
    """Return whether any executor that has reported answers. A few are asked at a time, so that a
    large fleet is not asked whole.
    """
    executors = list(gateway.live.executors)
    for start in range(0, len(executors), ASKED_AT_ONCE):
        answers = (
            _answers(gateway, ListRunning(executor_id=executor_id), RunningAttempts)
            for executor_id in executors[start : start + ASKED_AT_ONCE]
        )
        if any(await asyncio.gather(*answers)):
            return True
    return False


@route(endpoints.METRICS, responses=None, media_type=MediaType.TEXT)
async def metrics(gateway: TheGateway) -> Response[bytes]:
    """The platform's metrics, as Prometheus reads them."""
    return Response(await text_of(gateway), media_type=CONTENT_TYPE_PLAIN_0_0_4)
