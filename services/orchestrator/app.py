"""Puts the orchestrator together."""

import asyncio
from datetime import timedelta
from pathlib import Path

from schemas.orchestrator.experiments import OrchestratorCommandRecorded
from services.orchestrator.endpoints import EndpointStarts
from services.orchestrator.event_handlers import EventHandlers, event_routes
from services.orchestrator.handlers.leaders import LeaderHandlers, leader_routes
from services.orchestrator.handlers.presets import PresetHandlers, preset_routes
from services.orchestrator.handlers.secrets import SecretHandlers, secret_routes
from services.orchestrator.handlers.start_messages import StartMessages
from services.orchestrator.handlers.submissions import SubmissionHandlers, submission_routes
from services.orchestrator.handlers.tasks import Handlers, request_routes
from services.orchestrator.key_ring import KeyRing
from services.orchestrator.leases import Leases
from services.orchestrator.ledger import task_rows
from services.orchestrator.ledger.migrations import MIGRATIONS
from services.orchestrator.planning.gpu_prices import PriceCache
from services.orchestrator.planning.search_library import SearchLibrary
from services.orchestrator.preparations import Preparations
from services.orchestrator.resync import Resync
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.task_progress import Progress
from shared.messaging.bus import Bus
from shared.messaging.senders import has_our_users
from shared.paths import DataDirectory
from shared.postgres.command_audit import CommandAudit
from shared.postgres.database import Database
from shared.service import Service
from shared.settings import load_settings


def create_service(settings: OrchestratorSettings | None = None) -> Service:
    """The service, closed; `run` or `running` opens it. Raises SettingsError without Postgres."""
    settings = settings or load_settings(OrchestratorSettings, "orchestrator")
    database = Database.from_settings("orchestrator", settings, MIGRATIONS)
    bus = Bus.from_settings("orchestrator", settings)
    if has_our_users(bus.user):
        database.command_audit = CommandAudit(
            OrchestratorCommandRecorded, task_rows.read_audited_state
        )
    progress = Progress(
        timedelta(seconds=settings.offer_ttl_seconds),
        timedelta(seconds=settings.retry_pause_seconds),
        timedelta(seconds=settings.overdue_after_seconds),
        settings.cuda_rules,
    )
    first_report, lease_wake = asyncio.Event(), asyncio.Event()
    events = EventHandlers(database, progress, lease_wake, first_report)
    messages = StartMessages(bus)
    library = SearchLibrary(database)
    days = settings.archive_after_days
    submissions = SubmissionHandlers(
        database,
        bus,
        progress,
        first_report,
        settings.first_report_seconds,
        Path(settings.data_dir),
        library,
    )
    handlers = Handlers(
        database,
        progress,
        messages.by_attempt,
        PriceCache(bus),
        archive_after=None if days is None else timedelta(days=days),
    )
    leases = Leases(database, bus, lease_wake, progress.offer_ttl)
    resync = Resync(
        database,
        bus,
        events,
        settings.repair_interval_seconds,
        timedelta(seconds=settings.repair_after_seconds),
        progress.overdue_after,
    )
    preparations = Preparations(database, bus, progress, settings.preparation_interval_seconds)

    async def start() -> None:
        await messages.subscribe()
        await library.load_for_stored()
        await events.postpone_searches()

    return Service(
        "orchestrator",
        bus=bus,
        database=database,
        routes=[
            *submission_routes(submissions),
            *request_routes(handlers),
            *leader_routes(LeaderHandlers(database)),
            *preset_routes(PresetHandlers(database)),
            *secret_routes(SecretHandlers(database, _key_ring(settings))),
            *event_routes(events),
        ],
        loops={
            "leases": leases.run,
            "resync": resync.run,
            "search_library": library.run,
            "postponed_tasks": events.run_postponed,
            "preparations": preparations.run,
            "endpoints": EndpointStarts(database, bus, progress, events).run,
        },
        on_reply=events.on_reply,
        on_new_stream=resync.resync_now,
        start=start,
    )


def _key_ring(settings: OrchestratorSettings) -> KeyRing:
    if settings.secrets_key_file:
        return KeyRing(Path(settings.secrets_key_file), is_own=False)
    return KeyRing(DataDirectory(Path(settings.data_dir)).secrets_key_path, is_own=True)
