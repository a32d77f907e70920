"""Which message goes to which handler."""

from schemas.cluster.node_selection import GetClusterStatus, GetNodeSummaries, SelectNode
from schemas.executor.attempts import ExecutorReported
from schemas.gpus.available_gpus import ListAvailableGpus
from schemas.scheduler.devices import Cordon, Drain, Uncordon
from schemas.scheduler.idle import ExemptReservation
from schemas.scheduler.namespaces import ListNamespaces, SetNamespace
from schemas.scheduler.nodes import AdmitNode, LabelNode, RemoveNode
from schemas.scheduler.policy import TryPolicy
from schemas.scheduler.reservations import (
    CancelReservation,
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
)
from schemas.scheduler.views import (
    EstimateRequirements,
    ExplainReservation,
    GetAllocationMap,
    GetAvailability,
    GetReservation,
    ListDecisions,
    ListDrifts,
    ListReservations,
    ReplayDecisions,
    WhatIf,
)
from schemas.telemetry.readings import HealthChanged, InventoryReported
from services.scheduler.handlers import commands
from services.scheduler.handlers.commands import Commands
from services.scheduler.handlers.fleet_queries import FleetQueries
from services.scheduler.handlers.history_queries import HistoryQueries
from services.scheduler.handlers.node_reports import NodeReports
from services.scheduler.handlers.reservation_queries import ReservationQueries
from services.scheduler.intake.batcher import MAX_BATCH, CommandBatcher
from shared.messaging.bus import Route, command_route, event_route, query_route


def build_routes(
    batcher: CommandBatcher,
    handlers: Commands,
    reservations: ReservationQueries,
    fleet: FleetQueries,
    history: HistoryQueries,
    reports: NodeReports,
) -> list[Route]:
    return [
        command_route(batcher.submit_request, RequestReservation, workers=MAX_BATCH),
        command_route(batcher.submit, RenewReservation, workers=MAX_BATCH),
        command_route(batcher.submit, ReleaseReservation, workers=MAX_BATCH),
        command_route(handlers.once(commands.cancel), CancelReservation),
        command_route(handlers.once(commands.cordon), Cordon),
        command_route(handlers.once(commands.cordon), Uncordon),
        command_route(handlers.once(commands.drain), Drain),
        command_route(handlers.once(commands.label_node), LabelNode),
        command_route(handlers.once(commands.admit_node), AdmitNode),
        command_route(handlers.once(handlers.remove_node), RemoveNode),
        command_route(handlers.once(commands.set_namespace), SetNamespace),
        command_route(handlers.once(commands.exempt), ExemptReservation),
        query_route(reservations.get_reservation, GetReservation),
        query_route(reservations.list_reservations, ListReservations),
        query_route(reservations.explain, ExplainReservation),
        query_route(reservations.availability, GetAvailability),
        query_route(reservations.available_gpus, ListAvailableGpus),
        query_route(reservations.what_if, WhatIf),
        query_route(reservations.estimate, EstimateRequirements),
        query_route(fleet.allocation_map, GetAllocationMap),
        query_route(fleet.namespaces, ListNamespaces),
        query_route(fleet.cluster_status, GetClusterStatus),
        query_route(fleet.node_summaries, GetNodeSummaries),
        query_route(fleet.select_node, SelectNode),
        query_route(history.drifts, ListDrifts),
        query_route(history.decisions, ListDecisions),
        query_route(history.replay, ReplayDecisions),
        query_route(history.try_policy, TryPolicy),
        event_route(
            reports.record_inventory, InventoryReported, durable="scheduler_record_inventory"
        ),
        event_route(reports.record_health, HealthChanged, durable="scheduler_record_health"),
        event_route(reports.record_executor, ExecutorReported, durable="scheduler_record_executor"),
    ]
