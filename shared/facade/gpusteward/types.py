"""The types of what the interface takes and answers."""

from schemas.cluster.node_selection import (
    ClusterGpu,
    ClusterStatus,
    NodeGpuSummary,
    NodeSelection,
    NodeSummaries,
)
from schemas.errors import Accepted, ErrorCode
from schemas.executor.attempts import AttemptProgressed
from schemas.executor.logs import AttemptLogged, LogChunk
from schemas.gateway.archives import ArchiveKind, ImportedView
from schemas.gateway.tokens import AuditList, LoginLink, MadeToken, Me, TokenRequest, TokenView
from schemas.gateway.views import (
    GpuAllocMap,
    GpuList,
    GpuMetrics,
    GpuView,
    NodeList,
    NodeView,
    StoredEvent,
)
from schemas.gpus.available_gpus import AvailableGpus
from schemas.gpus.checks import Check, CheckView
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.orchestrator.presets import ExistingPreset, MergedPresets, PresetFile, PresetView
from schemas.orchestrator.views import ExperimentList, ExperimentView, TaskList, TaskPlan, TaskView
from schemas.results.reports import (
    FailuresView,
    IdleView,
    UsageBy,
    UsageView,
    WaitsView,
    WasteView,
    WaterfallView,
)
from schemas.scheduler.namespaces import NamespaceList
from schemas.scheduler.policy import PolicyTrial, TriedPolicy
from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import (
    AvailabilityView,
    DecisionList,
    DriftList,
    EstimateView,
    Explanation,
    Replay,
    ReservationList,
    ReservationView,
)
from schemas.task.report import TaskReport
from schemas.task.task_file import PresetMerge
from schemas.telemetry.monitoring import AgentView, GpuDetail, MonitoringView
from shared.kubernetes.access import ClusterAccess

__all__ = [
    "Accepted",
    "AgentView",
    "ArchiveKind",
    "AttemptLogged",
    "AttemptProgressed",
    "AuditList",
    "AvailabilityView",
    "AvailableGpus",
    "Check",
    "CheckView",
    "ClusterAccess",
    "ClusterGpu",
    "ClusterStatus",
    "DecisionList",
    "DriftList",
    "ErrorCode",
    "EstimateView",
    "ExistingPreset",
    "ExperimentList",
    "ExperimentState",
    "ExperimentView",
    "Explanation",
    "FailuresView",
    "GpuAllocMap",
    "GpuDetail",
    "GpuList",
    "GpuMetrics",
    "GpuRequest",
    "GpuView",
    "IdleView",
    "ImportedView",
    "LogChunk",
    "LoginLink",
    "MadeToken",
    "Me",
    "MergedPresets",
    "MonitoringView",
    "NamespaceList",
    "NodeGpuSummary",
    "NodeList",
    "NodeSelection",
    "NodeSummaries",
    "NodeView",
    "PolicyTrial",
    "PresetFile",
    "PresetMerge",
    "PresetView",
    "Replay",
    "ReservationList",
    "ReservationState",
    "ReservationView",
    "StoredEvent",
    "TaskList",
    "TaskPlan",
    "TaskReport",
    "TaskState",
    "TaskView",
    "TokenRequest",
    "TokenView",
    "TriedPolicy",
    "UsageBy",
    "UsageView",
    "WaitsView",
    "WasteView",
    "WaterfallView",
]
