"""The composition root: which parts a scheduler is made of, and which message goes where."""

from collections.abc import Callable

from schemas.base import Event
from schemas.executor import ExecutorReported
from schemas.scheduler import (
    CancelReservation,
    Cordon,
    DeviceFreed,
    DeviceUncordoned,
    Drain,
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    ReservationCancelled,
    ReservationQueued,
    ReservationReleased,
    Uncordon,
)
from schemas.scheduler_views import (
    EstimateRequirements,
    ExplainReservation,
    GetAllocationMap,
    GetAvailability,
    GetClusterStatus,
    GetNodeSummaries,
    GetReservation,
    ListDecisions,
    ListDrifts,
    ListReservations,
    ReplayDecisions,
    SelectNode,
    WhatIf,
)
from schemas.telemetry import GpuSampled, HealthChanged, InventoryReported
from services.scheduler.decider import Decider
from services.scheduler.fleet_queries import FleetQueries
from services.scheduler.fleet_reader import FleetReader
from services.scheduler.handlers import Commands
from services.scheduler.hearing import Hearing
from services.scheduler.intake import LARGEST, Intake
from services.scheduler.inventory import NodeReports
from services.scheduler.leadership import Leadership, Succession
from services.scheduler.ledgers import LedgerReader
from services.scheduler.migrations import MIGRATIONS
from services.scheduler.present import Present
from services.scheduler.queries import Queries
from services.scheduler.readings import DeviceKey, Readings
from services.scheduler.reconciliation import Reconciler
from services.scheduler.record_queries import RecordQueries
from services.scheduler.retention import Retention
from services.scheduler.settings import SchedulerSettings
from services.scheduler.snapshots import Snapshots
from shared.bus import Bus, Route, command_route, event_route, query_route
from shared.database import Database
from shared.errors import UnavailableError
from shared.logging import log
from shared.service import Service
from shared.settings import SettingsError, load_settings

# A scheduler that only accepts tells the leader by its events.
WAKING_EVENTS = (
    ReservationQueued,
    ReservationReleased,
    ReservationCancelled,
    DeviceFreed,
    DeviceUncordoned,
)

LATE_SECONDS = 5.0  # what a busy host may add to an interval without anything being missed


def create_service(
    settings: SchedulerSettings | None = None,
    *,
    make_leadership: Callable[[Database, float], Leadership] = Leadership,
) -> Service:
    """A scheduler, not yet started. Without settings they come from the environment."""
    settings = settings or load_settings(SchedulerSettings, "scheduler")
    bus = Bus.from_settings("scheduler", settings)
    database = _database(settings)
    readings = Readings()
    leadership = make_leadership(database, settings.leader_ttl_seconds)
    snapshots = Snapshots(
        bus,
        readings,
        settings.snapshot_timeout_seconds,
        on_confirmed=lambda changed: note_readings(changed),
    )
    limits = settings.drift_limits
    reader = FleetReader(
        readings, snapshots, settings.inventory_grace_seconds, limits.system_processes
    )
    decider = Decider(database, leadership, reader, settings.policy)
    present = Present(database, reader, settings.policy)
    succession = Succession(leadership, decider.wake)
    intake = Intake(database, decider.wake, decider.note_released)
    commands = Commands(database, intake, decider)
    retention = Retention(
        database,
        leadership,
        reservation_days=settings.retention_days,
        decision_days=settings.decision_retention_days,
        decisions_kept=settings.decisions_kept,
    )
    interval_seconds = settings.reconcile_interval_seconds
    hearing = Hearing(longest_gap_seconds=3 * interval_seconds + LATE_SECONDS)
    reconciler = Reconciler(
        database,
        leadership,
        LedgerReader(bus, readings, hearing, limits),
        interval_seconds=interval_seconds,
        node_lost_seconds=settings.node_lost_seconds,
        on_changed=decider.wake,
    )

    def note_readings(changed: frozenset[DeviceKey]) -> None:
        decider.note_readings(changed)
        present.note_readings(changed)

    async def note_sample(sample: GpuSampled) -> None:
        hearing.hear_agent(sample.node_id)
        note_readings(readings.observe(sample))

    async def note_inventory(event: InventoryReported) -> None:
        hearing.hear_agent(event.node_id)

    async def note_executor(event: ExecutorReported) -> None:
        hearing.hear_executor(event.executor_id)

    async def wake(event: Event) -> None:
        # Its own commands have woken it already; what a node confirms later comes by no command.
        freed = isinstance(event, DeviceFreed)
        if freed or not intake.has_served(getattr(event, "reservation_id", None)):
            decider.wake()

    async def hear() -> None:
        await bus.listen(GpuSampled, note_sample)
        await bus.listen(InventoryReported, note_inventory)
        await bus.listen(ExecutorReported, note_executor)
        for event in WAKING_EVENTS:
            await bus.listen(event, wake)

    return Service(
        "scheduler",
        bus=bus,
        database=database,
        routes=[
            *command_routes(commands),
            *query_routes(Queries(database, present)),
            *fleet_query_routes(FleetQueries(database, reader)),
            *record_query_routes(RecordQueries(database, settings.policy)),
            *event_routes(NodeReports(database, readings, decider)),
        ],
        loops={
            "decider": decider.run,
            "snapshots": snapshots.run,
            "reconciler": reconciler.run,
            "succession": succession.run,
            "retention": retention.run,
        },
        on_reply=commands.fenced,
        start=hear,
        stop=lambda: _step_down(leadership),
    )


def command_routes(commands: Commands) -> list[Route]:
    """What may be asked to be done."""
    return [
        command_route(commands.request, RequestReservation, workers=LARGEST),
        command_route(commands.renew, RenewReservation, workers=LARGEST),
        command_route(commands.release, ReleaseReservation, workers=LARGEST),
        command_route(commands.cancel, CancelReservation),
        command_route(commands.cordon, Cordon),
        command_route(commands.uncordon, Uncordon),
        command_route(commands.drain, Drain),
    ]


def query_routes(queries: Queries) -> list[Route]:
    """What may be asked about requests."""
    return [
        query_route(queries.get_reservation, GetReservation),
        query_route(queries.list_reservations, ListReservations),
        query_route(queries.explain, ExplainReservation),
        query_route(queries.availability, GetAvailability),
        query_route(queries.what_if, WhatIf),
        query_route(queries.estimate, EstimateRequirements),
    ]


def fleet_query_routes(queries: FleetQueries) -> list[Route]:
    """What may be asked about devices and nodes."""
    return [
        query_route(queries.allocation_map, GetAllocationMap),
        query_route(queries.cluster_status, GetClusterStatus),
        query_route(queries.node_summaries, GetNodeSummaries),
        query_route(queries.select_node, SelectNode),
    ]


def record_query_routes(queries: RecordQueries) -> list[Route]:
    """What may be asked about the record."""
    return [
        query_route(queries.drifts, ListDrifts),
        query_route(queries.decisions, ListDecisions),
        query_route(queries.replay, ReplayDecisions),
    ]


def event_routes(reports: NodeReports) -> list[Route]:
    """What nodes report, from the stream."""
    return [
        event_route(
            reports.record_inventory, InventoryReported, durable="scheduler_record_inventory"
        ),
        event_route(reports.record_health, HealthChanged, durable="scheduler_record_health"),
        event_route(reports.record_executor, ExecutorReported, durable="scheduler_record_executor"),
    ]


def _database(settings: SchedulerSettings) -> Database:
    if settings.postgres_dsn is None:
        raise SettingsError("the scheduler needs GPUSTEWARD_POSTGRES_DSN")
    return Database(settings.postgres_dsn, "scheduler", MIGRATIONS)


async def _step_down(leadership: Leadership) -> None:
    try:
        await leadership.give_up()
    except UnavailableError as error:
        log.warning("leadership_not_given_up", error=str(error))
