"""Every message of the platform, by kind, and which view answers which query."""

from collections.abc import Iterable
from types import ModuleType
from typing import get_args

from msgspec import Struct

from schemas import backlog
from schemas.base import Command, Event, Live, Message, Query
from schemas.cluster import node_selection
from schemas.cluster import nodes as cluster
from schemas.executor import attempts as executor
from schemas.executor import engine_samples, servers
from schemas.executor import logs as executor_logs
from schemas.executor import ranks as executor_ranks
from schemas.executor import running as executor_running
from schemas.gateway import comparison, datasets, engines, health, joining, problem
from schemas.gateway import views as gateway
from schemas.gateway.endpoints import ENDPOINTS
from schemas.gpus import available_gpus, mig
from schemas.orchestrator import deletion, leaders, presets, secrets, uploads
from schemas.orchestrator import experiments as orchestrator
from schemas.orchestrator import views as orchestrator_views
from schemas.results import engine_metrics, prices, reports, series
from schemas.results import measurements as results
from schemas.scheduler import devices as scheduler_devices
from schemas.scheduler import drifts as scheduler_drifts
from schemas.scheduler import idle as scheduler_idle
from schemas.scheduler import namespaces as scheduler_namespaces
from schemas.scheduler import nodes as scheduler_nodes
from schemas.scheduler import policy as scheduler_policy
from schemas.scheduler import reservations as scheduler
from schemas.scheduler import views as scheduler_views
from schemas.task import report as task_report
from schemas.telemetry import monitoring
from schemas.telemetry import readings as telemetry

MODULES: tuple[ModuleType, ...] = (
    telemetry,
    mig,
    engine_samples,
    monitoring,
    scheduler,
    scheduler_devices,
    scheduler_drifts,
    scheduler_nodes,
    scheduler_idle,
    scheduler_namespaces,
    node_selection,
    scheduler_policy,
    scheduler_views,
    available_gpus,
    cluster,
    orchestrator,
    orchestrator_views,
    leaders,
    presets,
    secrets,
    uploads,
    deletion,
    executor,
    executor_logs,
    servers,
    executor_running,
    executor_ranks,
    results,
    prices,
    engine_metrics,
    reports,
    series,
    gateway,
    comparison,
    datasets,
    health,
    engines,
    joining,
    task_report,
    backlog,
)

REPLIES: dict[type[Query], type[Struct]] = {
    telemetry.GetSnapshot: telemetry.GpuSampled,
    monitoring.GetAgent: monitoring.AgentView,
    monitoring.GetGpu: monitoring.GpuDetail,
    monitoring.StartMonitoring: monitoring.MonitoringView,
    monitoring.StopMonitoring: monitoring.MonitoringView,
    scheduler_views.WhatIf: scheduler_views.AvailabilityView,
    scheduler_views.ListDrifts: scheduler_views.DriftList,
    scheduler_views.ListDecisions: scheduler_views.DecisionList,
    scheduler_views.ReplayDecisions: scheduler_views.Replay,
    scheduler_policy.TryPolicy: scheduler_policy.PolicyTrial,
    node_selection.GetClusterStatus: node_selection.ClusterStatus,
    node_selection.GetNodeSummaries: node_selection.NodeSummaries,
    scheduler_views.GetReservation: scheduler_views.ReservationView,
    scheduler_views.ListReservations: scheduler_views.ReservationList,
    scheduler_views.ExplainReservation: scheduler_views.Explanation,
    scheduler_views.GetAvailability: scheduler_views.AvailabilityView,
    available_gpus.ListAvailableGpus: available_gpus.AvailableGpus,
    scheduler_views.EstimateRequirements: scheduler_views.EstimateView,
    scheduler_namespaces.ListNamespaces: scheduler_namespaces.NamespaceList,
    scheduler_views.GetAllocationMap: scheduler_views.AllocationMap,
    node_selection.SelectNode: node_selection.NodeSelection,
    cluster.GetCluster: cluster.ClusterView,
    orchestrator_views.GetTask: orchestrator_views.TaskView,
    orchestrator_views.ListTasks: orchestrator_views.TaskList,
    orchestrator_views.GetExperiment: orchestrator_views.ExperimentView,
    orchestrator_views.ListExperiments: orchestrator_views.ExperimentList,
    orchestrator_views.ValidateTask: orchestrator_views.TaskPlan,
    leaders.ListLeaders: leaders.LeaderList,
    presets.GetPreset: presets.PresetView,
    presets.ListPresets: presets.PresetList,
    presets.MergePresets: presets.MergedPresets,
    secrets.ListSecrets: secrets.SecretList,
    secrets.OpenSecrets: secrets.OpenedSecrets,
    uploads.ListUploadUses: uploads.UploadUses,
    executor_running.ListRunning: executor_running.RunningAttempts,
    executor_logs.ReadLog: executor_logs.LogChunk,
    servers.ListServedModels: servers.ServedModels,
    servers.AskServer: servers.ServerAnswer,
    executor_ranks.GetRank: executor_ranks.RankView,
    results.GetSummary: results.SummaryView,
    results.GetMemoryTrend: results.MemoryTrendView,
    results.GetRequests: results.RequestsView,
    results.ListSamples: results.SampleList,
    results.ListSummaries: results.SummaryList,
    series.GetSeries: series.SeriesView,
    series.ListPods: series.PodList,
    engine_metrics.GetEngineSeries: engine_metrics.EngineSeriesView,
    engine_metrics.ListEngineSamples: engine_metrics.EngineSampleList,
    results.GetReport: results.ReportView,
    reports.GetUsage: reports.UsageView,
    reports.GetWaste: reports.WasteView,
    reports.GetIdle: reports.IdleView,
    reports.GetWaits: reports.WaitsView,
    reports.GetFailures: reports.FailuresView,
    reports.GetWaterfall: reports.WaterfallView,
    prices.GetGpuPrices: prices.GpuPrices,
    datasets.GetDatasetPiece: datasets.DatasetPiece,
    **dict.fromkeys((*backlog.BACKLOG_OF.values(), backlog.GetExecutorBacklog), backlog.Backlog),
}


def _structs(kinds: Iterable[object]) -> tuple[type[Struct], ...]:
    """Return the structs among these types and the members of unions, each once."""
    members = (member for kind in kinds for member in get_args(kind) or (kind,))
    return tuple(
        dict.fromkeys(
            member for member in members if isinstance(member, type) and issubclass(member, Struct)
        )
    )


# What the gateway sends to people's clients, beside the owners' views.
PUBLIC = _structs((problem.Problem, *(row.answer for row in ENDPOINTS.values())))
# Bodies of HTTP requests; unlike messages they refuse a field that they do not know.
BODIES = _structs(row.body for row in ENDPOINTS.values())


def _messages() -> tuple[type[Message], ...]:
    return tuple(
        member
        for module in MODULES
        for _, member in sorted(vars(module).items())
        if isinstance(member, type)
        and issubclass(member, Message)
        and member.__module__ == module.__name__
        and "." in str(member.__struct_config__.tag)
    )


MESSAGES: tuple[type[Message], ...] = _messages()
EVENTS: tuple[type[Event], ...] = tuple(m for m in MESSAGES if issubclass(m, Event))
COMMANDS: tuple[type[Command], ...] = tuple(m for m in MESSAGES if issubclass(m, Command))
QUERIES: tuple[type[Query], ...] = tuple(m for m in MESSAGES if issubclass(m, Query))
LIVE: tuple[type[Live], ...] = tuple(m for m in MESSAGES if issubclass(m, Live))
