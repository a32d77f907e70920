"""Whether the platform answers, and the gateway's own figures."""

import asyncio
from datetime import timedelta
from typing import Any, Final

import psutil
from litestar import MediaType, Response, get

from schemas.base import Query
from schemas.errors import ErrorCode
from schemas.executor import ListRunning, RunningAttempts
from schemas.gateway import Health
from schemas.orchestrator import ListTasks, TaskList
from schemas.results import GetReport, ReportView
from schemas.scheduler_views import AllocationMap, GetAllocationMap
from services.gateway.gateway import Gateway
from services.gateway.routes.common import PROBLEMS, TheGateway
from shared.clock import utcnow
from shared.errors import RefusedError, UnavailableError

ANSWER_SECONDS: Final = 2.0
_process: Final = psutil.Process()


@get("/healthz")
async def is_alive() -> Health:
    """This process answers."""
    return Health(ready=True)


@get("/readyz", responses=PROBLEMS)
async def is_ready(gateway: TheGateway) -> Health:
    """Bus, Postgres and every service answer; if not, `details.missing` says which do not."""
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
        "telemetry": any(not heard.is_stale for heard in gateway.live.heard().values()),
    }
    missing = [name for name, answers in found.items() if not answers]
    if missing:
        raise RefusedError(
            ErrorCode.UNAVAILABLE,
            f"no answer from {', '.join(missing)}",
            details={"missing": missing},
        )
    return Health(ready=True)


async def _answers(gateway: Gateway, query: Query, view: type[Any]) -> bool:
    try:
        await gateway.ask(query, view, timeout_seconds=ANSWER_SECONDS)
    except (UnavailableError, RefusedError):
        return False
    return True


async def _postgres(gateway: Gateway) -> bool:
    try:
        async with asyncio.timeout(ANSWER_SECONDS), gateway.database.transaction() as connection:
            return bool(await connection.fetchval("SELECT true"))
    except (UnavailableError, TimeoutError):
        return False


async def _executors(gateway: Gateway) -> bool:
    """Whether any of those that were heard of answers."""
    asked = (
        _answers(gateway, ListRunning(executor_id=executor_id), RunningAttempts)
        for executor_id in gateway.live.executors
    )
    return any(await asyncio.gather(*asked))


@get("/metrics", media_type=MediaType.TEXT)
async def metrics(gateway: TheGateway) -> Response[str]:
    """The gateway's own figures, as Prometheus reads them."""
    with _process.oneshot():
        cpu, memory = _process.cpu_times(), _process.memory_info()
        started_at = _process.create_time()
    figures: list[tuple[str, str, str, float]] = [
        ("process_cpu_seconds_total", "counter", "CPU time used", cpu.user + cpu.system),
        ("process_resident_memory_bytes", "gauge", "Resident memory", memory.rss),
        ("process_start_time_seconds", "gauge", "Start, since the epoch", started_at),
        ("gpusteward_bus_connected", "gauge", "1 if the bus answers", gateway.bus.is_connected),
        (
            "gpusteward_gateway_samples_heard_total",
            "counter",
            "Samples heard on the bus",
            gateway.live.samples_heard,
        ),
        (
            "gpusteward_gateway_events_stored_total",
            "counter",
            "Events taken into the log",
            gateway.log.stored_events,
        ),
        ("gpusteward_gateway_event_cursor", "gauge", "Newest cursor", gateway.log.cursor),
        (
            "gpusteward_gateway_metric_watchers",
            "gauge",
            "WebSocket clients of live data",
            len(gateway.live.watchers),
        ),
        ("gpusteward_gateway_nodes", "gauge", "Nodes heard of", len(gateway.live.heard())),
    ]
    lines = [
        f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name} {float(value):.17g}\n"
        for name, kind, text, value in figures
    ]
    return Response("".join(lines), media_type="text/plain; version=0.0.4; charset=utf-8")


ROUTES = [is_alive, is_ready, metrics]
