"""Puts the orchestrator together."""

import asyncio
from datetime import timedelta

from services.orchestrator.facts import Facts, fact_routes
from services.orchestrator.handlers import Handlers, request_routes
from services.orchestrator.leases import Leases
from services.orchestrator.migrations import MIGRATIONS
from services.orchestrator.progress import Progress
from services.orchestrator.repair import Repair
from services.orchestrator.settings import OrchestratorSettings
from shared.bus import Bus
from shared.database import Database
from shared.service import Service
from shared.settings import SettingsError, load_settings


def create_service(settings: OrchestratorSettings | None = None) -> Service:
    """The service, closed; `run` or `running` opens it. Raises SettingsError without Postgres."""
    settings = settings or load_settings(OrchestratorSettings, "orchestrator")
    if settings.postgres_dsn is None:
        raise SettingsError("expected GPUSTEWARD_POSTGRES_DSN, found none")
    database = Database(settings.postgres_dsn, "orchestrator", MIGRATIONS)
    bus = Bus.from_settings("orchestrator", settings)
    progress = Progress(
        timedelta(seconds=settings.offer_ttl_seconds),
        timedelta(seconds=settings.retry_pause_seconds),
    )
    first_report, lease_wake = asyncio.Event(), asyncio.Event()
    facts = Facts(database, progress, lease_wake, first_report)
    handlers = Handlers(database, progress, first_report, settings.first_report_seconds)
    leases = Leases(database, bus, lease_wake, progress.offer_ttl)
    repair = Repair(
        database,
        bus,
        facts,
        settings.repair_interval_seconds,
        timedelta(seconds=settings.repair_after_seconds),
        timedelta(seconds=settings.overdue_after_seconds),
    )
    bus.on_new_stream.append(repair.ask_at_once)
    return Service(
        "orchestrator",
        bus=bus,
        database=database,
        routes=[*request_routes(handlers), *fact_routes(facts)],
        loops={"leases": leases.run, "repair": repair.run},
        on_reply=facts.on_reply,
    )
