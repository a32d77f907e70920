"""Puts the scheduler together."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from schemas.scheduler.reservations import SchedulerCommandRecorded
from services.scheduler.handlers.commands import Commands
from services.scheduler.handlers.fleet_queries import FleetQueries
from services.scheduler.handlers.history_queries import HistoryQueries
from services.scheduler.handlers.node_reports import NodeReports
from services.scheduler.handlers.reservation_queries import ReservationQueries
from services.scheduler.handlers.routes import build_routes
from services.scheduler.intake.batcher import CommandBatcher
from services.scheduler.leader.cluster_decisions import ClusterDecisions
from services.scheduler.leader.decision_loop import DecisionLoop
from services.scheduler.leader.fleet_reader import FleetReader
from services.scheduler.leader.mig_changes import MigChanges
from services.scheduler.leader.query_engine import QueryEngine
from services.scheduler.leader.start_forecasts import StartForecasts
from services.scheduler.ledger.change_listener import ChangeListener
from services.scheduler.ledger.leader_election import Leadership, Succession
from services.scheduler.ledger.migrations import MIGRATIONS
from services.scheduler.ledger.retention import Retention
from services.scheduler.ledger.rows import reservation_rows
from services.scheduler.observations.cluster_views import ClusterViews
from services.scheduler.observations.engine_activities import EngineActivities
from services.scheduler.observations.latest_readings import LatestReadings
from services.scheduler.observations.node_liveness import NodeLiveness
from services.scheduler.observations.release_snapshots import ReleaseSnapshots
from services.scheduler.observations.sample_listener import SampleListener
from services.scheduler.reconciliation.collect import Collector
from services.scheduler.reconciliation.idleness import IdleWatch
from services.scheduler.reconciliation.loop import Reconciler
from services.scheduler.settings import SchedulerSettings
from shared.errors import UnavailableError
from shared.logging import log
from shared.messaging.bus import Bus
from shared.messaging.senders import has_our_users
from shared.postgres.command_audit import CommandAudit
from shared.postgres.database import Database
from shared.service import Service
from shared.settings import load_settings

LATE_SECONDS = 5.0  # what a busy host may add to an interval without anything being missed


def create_service(
    settings: SchedulerSettings | None = None,
    *,
    make_leadership: Callable[[Database, float], Leadership] = Leadership,
) -> Service:
    """A scheduler, not yet started. Without settings they come from the environment."""
    settings = settings or load_settings(SchedulerSettings, "scheduler")
    interval_seconds, limits = settings.reconcile_interval_seconds, settings.drift_limits
    share_rules = settings.share_rules
    bus = Bus.from_settings("scheduler", settings)
    database = Database.from_settings("scheduler", settings, MIGRATIONS, keeps_plans=True)
    if has_our_users(bus.user):
        database.command_audit = CommandAudit(
            SchedulerCommandRecorded, reservation_rows.audit_state
        )
    leadership = make_leadership(database, settings.leader_ttl_seconds)
    readings, engines = LatestReadings(), EngineActivities()
    liveness = NodeLiveness(longest_gap_seconds=3 * interval_seconds + LATE_SECONDS)
    snapshots = ReleaseSnapshots(bus, readings, settings.snapshot_timeout_seconds)
    reader = FleetReader(
        readings,
        snapshots,
        settings.inventory_grace_seconds,
        settings.recovery_quiet_seconds,
        limits.system_processes,
        settings.idle_memory_mb,
    )
    reports = NodeReports(database, readings, settings.admits)
    views = ClusterViews(bus, readings, liveness, reports.record_cluster, reports.clusters)
    decision_loop = DecisionLoop(
        database,
        leadership,
        reader,
        settings.policy,
        ClusterDecisions(database, leadership, views),
    )
    commands = Commands(database, liveness, limits.stale_agent_seconds)
    retention = Retention(
        database,
        leadership,
        reservation_days=settings.retention_days,
        decision_days=settings.decision_retention_days,
        decisions_kept=settings.decisions_kept,
    )
    reconciler = Reconciler(
        database,
        leadership,
        Collector(bus, readings, liveness, limits, views, engines),
        interval_seconds=interval_seconds,
        node_lost_seconds=settings.node_lost_seconds,
        quiet_seconds=settings.recovery_quiet_seconds,
        idleness=IdleWatch(database, leadership, settings.idle_policy),
    )
    query_engine = QueryEngine(database, reader, settings.policy)
    return Service(
        "scheduler",
        bus=bus,
        database=database,
        routes=build_routes(
            CommandBatcher(
                database, decision_loop.request_snapshots, Path(settings.data_dir), share_rules
            ),
            commands,
            ReservationQueries(database, query_engine, views, share_rules),
            FleetQueries(database, reader, query_engine, views),
            HistoryQueries(database, settings.policy),
            reports,
        ),
        loops={
            "decisions": decision_loop.run,
            "ledger_changes": ChangeListener(database, decision_loop.wake).run,
            "snapshots": snapshots.run,
            "start_forecasts": StartForecasts(database, leadership, query_engine).run,
            "cluster_views": views.run,
            "mig_changes": MigChanges(database, leadership, query_engine).run,
            "reconciler": reconciler.run,
            "succession": Succession(leadership, decision_loop.wake).run,
            "retention": retention.run,
        },
        on_reply=commands.confirm_fence,
        start=SampleListener(bus, readings, liveness, views, engines).subscribe,
        stop=partial(_step_down, leadership),
    )


async def _step_down(leadership: Leadership) -> None:
    try:
        await leadership.give_up()
    except UnavailableError as error:
        log.warning("leadership_not_given_up", error=str(error))
