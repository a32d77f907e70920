"""Every operation of the HTTP API, once: method, path, query, body, answer and role.

The gateway's routes, `shared.client`, the tools of `gpusteward mcp` and the web page are made of
these rows; tests hold docs/reference/api.md and the OpenAPI document to them.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from schemas.cluster import node_selection
from schemas.errors import Accepted
from schemas.executor import servers
from schemas.executor.logs import AttemptLogged, LogChunk
from schemas.gateway import health, joining, server_trials, sign_in, tokens, views
from schemas.gateway.archives import ImportedList, ImportedView
from schemas.gateway.comparison import ExperimentComparison
from schemas.gateway.datasets import DatasetList, DatasetView
from schemas.gateway.endpoint import Endpoint, ask, change, delete, read
from schemas.gateway.engines import EngineList
from schemas.gpus.available_gpus import AvailableGpus
from schemas.gpus.checks import AnyCheck, CheckView
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator import presets, secrets
from schemas.orchestrator import views as tuning
from schemas.orchestrator.leaders import LeaderList
from schemas.results import measurements, reports
from schemas.results.engine_metrics import EngineSeriesView
from schemas.results.series import PodList, SeriesView
from schemas.scheduler import views as scheduling
from schemas.scheduler.namespaces import NamespaceList
from schemas.scheduler.policy import PolicyTrial
from schemas.task.load_commands import ExperimentCommands
from schemas.task.report import TaskReport
from schemas.task.task_file import TaskFile
from schemas.telemetry import monitoring

A = TypeVar("A")

NOTHING: Final = type(None)
PAGE: Final = ("limit", "cursor")
PERIOD: Final = ("start_at", "end_at")
OF_EVENT: Final = ("task_id", "experiment_id", "reservation_id")
OF_METRICS: Final = ("node_id", "device_uuid", "experiment_id", "task_id", "namespace", "rate")
VIEWER: Final = tokens.Role.VIEWER
OWNER: Final = tokens.Role.OWNER
ADMIN: Final = tokens.Role.ADMIN
REPORT_SECONDS: Final = 35.0
ARCHIVE_SECONDS: Final = 600.0
UPLOAD_SECONDS: Final = 1800.0

# Tasks and experiments.
SUBMIT_TASK: Final = change(
    "/tasks", TaskFile, tuning.TaskView, "task_id", "namespace", "requester", status=201
)
LIST_TASKS: Final = read("/tasks", tuning.TaskList, "namespace", "state", "archived", *PAGE)
GET_TASK: Final = read("/tasks/{task_id}", tuning.TaskView)
VALIDATE_TASK: Final = ask("/tasks/validate", TaskFile, tuning.TaskPlan, "namespace")
CANCEL_TASK: Final = change("/tasks/{task_id}/cancel", views.Cause, tuning.TaskView)
PAUSE_TASK: Final = change("/tasks/{task_id}/pause", None, tuning.TaskView)
RESUME_TASK: Final = change("/tasks/{task_id}/resume", None, tuning.TaskView)
DELETE_TASK: Final = delete("/tasks/{task_id}", Accepted)
LIST_TASK_EXPERIMENTS: Final = read(
    "/tasks/{task_id}/experiments", views.ExperimentDetails, "state", "node_id", "monitoring", *PAGE
)
LIST_TASK_SUMMARIES: Final = read("/tasks/{task_id}/summaries", measurements.SummaryList, *PAGE)
LIST_EXPERIMENTS: Final = read(
    "/experiments",
    views.ExperimentDetails,
    *("task_id", "state", "namespace", "node_id", "archived", *PAGE, "monitoring"),
)
GET_EXPERIMENT: Final = read("/experiments/{experiment_id}", views.ExperimentDetail)
GET_COMMANDS: Final = read("/experiments/{experiment_id}/commands", ExperimentCommands)
COMPARE_EXPERIMENTS: Final = read("/comparison", ExperimentComparison, "experiments")
LIST_LEADERS: Final = read("/leaders", LeaderList, "model", "objective", "namespace", "limit")
DELETE_EXPERIMENT: Final = delete("/experiments/{experiment_id}", Accepted)
READ_LOG: Final = read("/experiments/{experiment_id}/logs", LogChunk, "attempt", "offset", "lines")
GET_REQUESTS: Final = read(
    "/experiments/{experiment_id}/requests", measurements.RequestsView, "level"
)
GET_ENGINE_SERIES: Final = read(
    "/experiments/{experiment_id}/engine", EngineSeriesView, *PERIOD, "points"
)
EXPORT_TASK: Final = read("/tasks/{task_id}/export", bytes, timeout_seconds=ARCHIVE_SECONDS)
EXPORT_EXPERIMENT: Final = read(
    "/experiments/{experiment_id}/export", bytes, timeout_seconds=ARCHIVE_SECONDS
)
IMPORT_ARCHIVE: Final = change(
    "/imports", bytes, ImportedView, "namespace", status=201, timeout_seconds=ARCHIVE_SECONDS
)
LIST_IMPORTS: Final = read("/imports", ImportedList, *PAGE)
ADD_DATASET: Final = change(
    "/datasets",
    bytes,
    DatasetView,
    *("name", "file_name", "namespace"),
    status=201,
    timeout_seconds=UPLOAD_SECONDS,
)
LIST_DATASETS: Final = read("/datasets", DatasetList, "namespace", *PAGE)
GET_DATASET: Final = read("/datasets/{dataset_name}", DatasetView, "namespace")
REMOVE_DATASET: Final = delete("/datasets/{dataset_name}", Accepted, "namespace", "force")
LIST_ENGINES: Final = read("/engines", EngineList)
LIST_PRESETS: Final = read("/presets", presets.PresetList, "namespace", *PAGE)
GET_PRESET: Final = read("/presets/{preset_name}", presets.PresetView, "namespace")
SAVE_PRESETS: Final = change("/presets", presets.PresetFile, Accepted, "existing", "namespace")
SAVE_PRESET: Final = change(
    "/presets/{preset_name}", presets.PresetContent, presets.PresetView, "namespace", status=201
)
DELETE_PRESET: Final = delete("/presets/{preset_name}", Accepted, "namespace")
MERGE_PRESETS: Final = ask(
    "/merged-presets", presets.MergeRequest, presets.MergedPresets, "namespace"
)

# Secrets of namespaces.
LIST_SECRETS: Final = read("/secrets", secrets.SecretList, "namespace", *PAGE)
SET_SECRET: Final = change(
    "/secrets/{secret_name}", secrets.SecretValue, secrets.SecretView, "namespace"
)
REMOVE_SECRET: Final = delete("/secrets/{secret_name}", Accepted, "namespace")
ROTATE_SECRET_KEY: Final = change(
    "/secret-key/rotate", None, Accepted, role=ADMIN, timeout_seconds=65.0
)

# Reservations, and what would be granted.
REQUEST_RESERVATION: Final = change(
    "/reservations", views.ReservationRequest, scheduling.ReservationView, status=201
)
LIST_RESERVATIONS: Final = read(
    "/reservations", scheduling.ReservationList, "state", "namespace", "node_id", *PAGE
)
GET_RESERVATION: Final = read(
    "/reservations/{reservation_id}", scheduling.ReservationView, "wait_seconds"
)
END_RESERVATION: Final = delete(
    "/reservations/{reservation_id}", scheduling.ReservationView, "epoch", "stopped", "reason"
)
RENEW_RESERVATION: Final = change(
    "/reservations/{reservation_id}/renew", views.LeaseRenewal, Accepted, is_audited=False
)
EXEMPT_RESERVATION: Final = change(
    "/reservations/{reservation_id}/idle-exemption", views.IdleExemption, Accepted
)
EXPLAIN_RESERVATION: Final = read("/reservations/{reservation_id}/explain", scheduling.Explanation)
WHAT_IF: Final = ask(
    "/reservations/{reservation_id}/what-if", GpuRequest, scheduling.AvailabilityView
)
CHECK_AVAILABILITY: Final = ask(
    "/availability", GpuRequest, scheduling.AvailabilityView, "wait_seconds"
)
GET_AVAILABILITY: Final = read(
    "/availability",
    scheduling.AvailabilityView,
    *("gpus", "min_memory_mb", "max_utilization_percent", "wait_seconds"),
)
ESTIMATE: Final = ask("/estimate", dict[str, Any], scheduling.EstimateView)
CHECK: Final = ask("/checks", AnyCheck, CheckView)

# GPUs and nodes.
LIST_GPUS: Final = read("/gpus", views.GpuList, "node_id", "use_cache", *PAGE)
LIST_NODES: Final = read("/nodes", views.NodeList, *PAGE)
GET_NODE: Final = read("/nodes/{node_id}", views.NodeView)
REMOVE_NODE: Final = delete("/nodes/{node_id}", Accepted, "end_held", "reason", role=ADMIN)
LIST_NODE_EVENTS: Final = read("/nodes/{node_id}/events", views.EventList, "before_id", "limit")
GET_GPU_ALLOC_MAP: Final = read("/nodes/{node_id}/gpu-alloc-map", views.GpuAllocMap)
GET_AGENT: Final = read("/nodes/{node_id}/agent", monitoring.AgentView)
LIST_AVAILABLE_GPUS: Final = read(
    "/nodes/{node_id}/available-gpus",
    AvailableGpus,
    *("min_memory_mb", "max_utilization", "use_cache"),
)
GET_GPU: Final = read("/nodes/{node_id}/gpus/{index}", monitoring.GpuDetail, "use_cache")
START_MONITORING: Final = change(
    "/nodes/{node_id}/monitoring", views.MonitoringRequest, monitoring.MonitoringView, status=201
)
STOP_MONITORING: Final = delete(
    "/nodes/{node_id}/monitoring/{monitoring_id}", monitoring.MonitoringView
)
LIST_SERVED_MODELS: Final = change(
    "/nodes/{node_id}/served-models", server_trials.ServerAddress, servers.ServedModels
)
ASK_SERVER: Final = change(
    "/nodes/{node_id}/ask-server", server_trials.ServerQuestion, servers.ServerAnswer
)
SET_BURST: Final = change("/nodes/{node_id}/burst", views.BurstRequest, Accepted)
SET_POWER_LIMIT: Final = change("/nodes/{node_id}/power-limit", views.PowerLimitRequest, Accepted)
CORDON: Final = change("/nodes/{node_id}/cordon", views.Withdrawal, Accepted, role=ADMIN)
UNCORDON: Final = change("/nodes/{node_id}/uncordon", views.ReturnToService, Accepted, role=ADMIN)
DRAIN: Final = change("/nodes/{node_id}/drain", views.Cause, Accepted, role=ADMIN)
ADMIT_NODE: Final = change("/nodes/{node_id}/admit", None, Accepted, role=ADMIN)
INVITE_NODE: Final = change(
    "/nodes/{node_id}/invite",
    joining.InvitationRequest,
    joining.NodeInvitation,
    role=ADMIN,
    status=201,
)
JOIN: Final = ask("/join", joining.JoinRequest, joining.NodeCredentials)
LABEL_NODE: Final = change("/nodes/{node_id}/labels", views.Relabelling, Accepted, role=ADMIN)
LIST_NAMESPACES: Final = read("/namespaces", NamespaceList)
SET_NAMESPACE: Final = change("/namespaces/{namespace}", views.NamespaceRules, Accepted, role=OWNER)
LIST_MEMBERS: Final = read("/namespaces/{namespace}/members", sign_in.MemberList, role=OWNER)
SET_MEMBER: Final = change(
    "/namespaces/{namespace}/members",
    sign_in.MemberRequest,
    sign_in.MemberView,
    role=OWNER,
    status=201,
)
REMOVE_MEMBER: Final = delete(
    "/namespaces/{namespace}/members/{member_id}", sign_in.MemberView, role=OWNER
)
LIST_DRIFTS: Final = read("/drifts", scheduling.DriftList, "node_id", "ended", *PAGE)

# Node selection, and what was decided.
SELECT_NODE: Final = read(
    "/select-node",
    node_selection.NodeSelection,
    *("required_gpus", "utilization_threshold", "memory_threshold"),
)
SELECT_NODE_FOR: Final = ask("/select-node", GpuRequest, node_selection.NodeSelection)
GET_CLUSTER_STATUS: Final = read("/cluster/gpus", node_selection.ClusterStatus, *PAGE)
GET_NODE_SUMMARIES: Final = read(
    "/cluster/nodes",
    node_selection.NodeSummaries,
    "utilization_threshold",
    "memory_threshold",
    *PAGE,
)
LIST_CLUSTER_DEVICES: Final = read("/cluster/devices", views.ClusterDeviceList, *PAGE)
LIST_DECISIONS: Final = read(
    "/decisions",
    scheduling.DecisionList,
    *("after_id", "reservation_id", "limit", "before_id"),
    role=ADMIN,
)
TRY_POLICY: Final = read(
    "/decisions/what-if-policy",
    PolicyTrial,
    *("policy", "since_at"),
    role=ADMIN,
    timeout_seconds=135.0,
)
REPLAY_DECISIONS: Final = read(
    "/decisions/replay",
    scheduling.Replay,
    *("from_id", "reservation_id", "limit"),
    role=ADMIN,
    timeout_seconds=75.0,
)

# History and reports.
LIST_EVENTS: Final = read("/events", views.EventList, "after", "limit", "type", *OF_EVENT)
PUBLISH_EVENT: Final = change("/events", views.CustomEventRequest, views.Published, status=202)
GET_SERIES: Final = read(
    "/series",
    SeriesView,
    *("metric", "range", *PERIOD, "node_id", "device_uuid", "experiment_id", "pod_namespace"),
    *("pod", "gpu_model", "kind_of_gpu", "points", "by", "namespace"),
)
LIST_PODS: Final = read("/pods", PodList, "range", *PERIOD, "node_id", "kind_of_gpu", "namespace")


def _report(path: str, answer: type[A], *query: str) -> Endpoint[A]:
    return read(f"/reports/{path}", answer, *query, timeout_seconds=REPORT_SECONDS)


GET_USAGE: Final = _report("usage", measurements.ReportView, *PERIOD)
GET_GPU_TIME: Final = _report("gpu-time", reports.UsageView, "by", *PERIOD, "namespace", "daily")
GET_WASTE: Final = _report("waste", reports.WasteView, *PERIOD, "namespace")
GET_IDLE: Final = _report(
    "idle", reports.IdleView, *PERIOD, "namespace", "window_seconds", "grace_seconds"
)
GET_WAITS: Final = _report("waits", reports.WaitsView, *PERIOD, "namespace")
GET_FAILURES: Final = _report("failures", reports.FailuresView, *PERIOD, "namespace")
GET_TASK_REPORT: Final = _report("tasks/{task_id}", TaskReport)
GET_TASK_REPORT_AS_MARKDOWN: Final = _report("tasks/{task_id}/markdown", str)
GET_WATERFALL: Final = _report("waterfall/{subject_id}", reports.WaterfallView)

# Who may use the API, and who changed what.
SHOW_ME: Final = read("/me", tokens.Me)
LOG_IN: Final = ask("/login", tokens.Login, tokens.Me)
MAKE_LOGIN_LINK: Final = change("/login/links", None, tokens.LoginLink, role=VIEWER, status=201)
LOG_OUT: Final = change("/logout", None, NOTHING, role=VIEWER, status=204)
SHOW_SIGN_IN: Final = read("/sign-in", sign_in.SignInOffer)
START_DEVICE_SIGN_IN: Final = ask("/sign-in/device", sign_in.DeviceRequest, sign_in.DeviceCode)
FINISH_DEVICE_SIGN_IN: Final = ask(
    "/sign-in/device/answer", sign_in.DeviceAnswerRequest, sign_in.DeviceAnswer
)
SIGN_OUT: Final = change("/sign-out", None, sign_in.SignedOut, role=VIEWER)
CREATE_TOKEN: Final = change(
    "/tokens", tokens.TokenRequest, tokens.MadeToken, role=VIEWER, status=201
)
LIST_TOKENS: Final = read("/tokens", tokens.TokenList, "mine", *PAGE)
REVOKE_TOKEN: Final = delete("/tokens/{token_id}", tokens.TokenView, role=VIEWER)
LIST_CHANGES: Final = read(
    "/audit",
    tokens.AuditList,
    *("token_id", "caller", "path", "kind", "action", "result", "about", *PERIOD, *PAGE),
    role=ADMIN,
)
EXPORT_CHANGES: Final = read(
    "/audit/export", bytes, *PERIOD, role=ADMIN, timeout_seconds=ARCHIVE_SECONDS
)

# Outside `/api/v1`: whether the platform works, and what happens, as it happens.
IS_ALIVE: Final = read("/healthz", health.Health, root="")
IS_READY: Final = read("/readyz", health.Health, root="")
METRICS: Final = read("/metrics", str, root="")
WATCH_METRICS: Final = read("/ws/metrics", views.GpuMetrics, *OF_METRICS, root="")
WATCH_EVENTS: Final = read("/ws/events", views.StoredEvent, "after", "type", *OF_EVENT, root="")
WATCH_LOGS: Final = read("/ws/logs", AttemptLogged, "experiment_id", root="")
FOLLOW_METRICS: Final = read("/sse/metrics", bytes, *OF_METRICS, root="")
FOLLOW_EVENTS: Final = read("/sse/events", bytes, "after", "type", *OF_EVENT, root="")

# By the name of their route.
ENDPOINTS: Final[Mapping[str, Endpoint[Any]]] = {
    name.lower(): row for name, row in globals().items() if isinstance(row, Endpoint)
}
