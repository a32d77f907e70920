// Written by `python -m schemas.export schemas/exported`; not to be edited.
import type {
  Accepted,
  AgentView,
  AttemptLogged,
  AuditList,
  AvailabilityView,
  AvailableGpus,
  BurstRequest,
  Cause,
  CheckView,
  ClusterDeviceList,
  ClusterStatus,
  CudaCheck,
  CustomEventRequest,
  DatasetList,
  DatasetView,
  DecisionList,
  DeviceAnswer,
  DeviceAnswerRequest,
  DeviceCode,
  DeviceConfigCheck,
  DeviceRequest,
  DriftList,
  EngineList,
  EngineSeriesView,
  EstimateView,
  EventList,
  ExperimentCommands,
  ExperimentComparison,
  ExperimentDetail,
  ExperimentDetails,
  Explanation,
  FailuresView,
  GpuAllocMap,
  GpuDetail,
  GpuList,
  GpuMetrics,
  GpuRequest,
  Health,
  IdleExemption,
  IdleView,
  ImportedList,
  ImportedView,
  InvitationRequest,
  JoinRequest,
  LeaderList,
  LeaseRenewal,
  LogChunk,
  Login,
  LoginLink,
  MadeToken,
  Me,
  MemberList,
  MemberRequest,
  MemberView,
  MergeRequest,
  MergedPresets,
  ModeCheck,
  MonitoringRequest,
  MonitoringView,
  NamespaceList,
  NamespaceRules,
  NodeCredentials,
  NodeInvitation,
  NodeList,
  NodeSelection,
  NodeSummaries,
  NodeView,
  PodList,
  PolicyTrial,
  PowerLimitRequest,
  PrecisionCheck,
  PresetContent,
  PresetFile,
  PresetList,
  PresetView,
  Published,
  Relabelling,
  Replay,
  ReportView,
  RequestsView,
  ReservationList,
  ReservationRequest,
  ReservationView,
  ReturnToService,
  SecretList,
  SecretValue,
  SecretView,
  SeriesView,
  ServedModels,
  ServerAddress,
  ServerAnswer,
  ServerQuestion,
  SignInOffer,
  SignedOut,
  StoredEvent,
  SummaryList,
  TaskFile,
  TaskList,
  TaskPlan,
  TaskReport,
  TaskView,
  TokenList,
  TokenRequest,
  TokenView,
  UsageView,
  WaitsView,
  WasteView,
  WaterfallView,
  Withdrawal,
} from "./messages";

/** Where the paths of most operations begin. */
export const API = "/api/v1";

/** An operation of the API: what its path and its query take, its body, and its answer. */
export interface Endpoint<Place extends string, Query extends string, Body, Answer> {
  readonly method: "GET" | "POST" | "DELETE";
  readonly path: string;
  /** For the compiler alone. */
  readonly types?: { place: Place; query: Query; body: Body; answer: Answer };
}

export const submitTask: Endpoint<
  never,
  "task_id" | "namespace" | "requester",
  TaskFile,
  TaskView
> = { method: "POST", path: "/api/v1/tasks" };

export const listTasks: Endpoint<
  never,
  "namespace" | "state" | "archived" | "limit" | "cursor",
  undefined,
  TaskList
> = { method: "GET", path: "/api/v1/tasks" };

export const getTask: Endpoint<
  "task_id",
  never,
  undefined,
  TaskView
> = { method: "GET", path: "/api/v1/tasks/{task_id}" };

export const validateTask: Endpoint<
  never,
  "namespace",
  TaskFile,
  TaskPlan
> = { method: "POST", path: "/api/v1/tasks/validate" };

export const cancelTask: Endpoint<
  "task_id",
  never,
  Cause,
  TaskView
> = { method: "POST", path: "/api/v1/tasks/{task_id}/cancel" };

export const pauseTask: Endpoint<
  "task_id",
  never,
  undefined,
  TaskView
> = { method: "POST", path: "/api/v1/tasks/{task_id}/pause" };

export const resumeTask: Endpoint<
  "task_id",
  never,
  undefined,
  TaskView
> = { method: "POST", path: "/api/v1/tasks/{task_id}/resume" };

export const deleteTask: Endpoint<
  "task_id",
  never,
  undefined,
  Accepted
> = { method: "DELETE", path: "/api/v1/tasks/{task_id}" };

export const listTaskExperiments: Endpoint<
  "task_id",
  "state" | "node_id" | "monitoring" | "limit" | "cursor",
  undefined,
  ExperimentDetails
> = { method: "GET", path: "/api/v1/tasks/{task_id}/experiments" };

export const listTaskSummaries: Endpoint<
  "task_id",
  "limit" | "cursor",
  undefined,
  SummaryList
> = { method: "GET", path: "/api/v1/tasks/{task_id}/summaries" };

export const listExperiments: Endpoint<
  never,
  "task_id" | "state" | "namespace" | "node_id" | "archived" | "limit" | "cursor" | "monitoring",
  undefined,
  ExperimentDetails
> = { method: "GET", path: "/api/v1/experiments" };

export const getExperiment: Endpoint<
  "experiment_id",
  never,
  undefined,
  ExperimentDetail
> = { method: "GET", path: "/api/v1/experiments/{experiment_id}" };

export const getCommands: Endpoint<
  "experiment_id",
  never,
  undefined,
  ExperimentCommands
> = { method: "GET", path: "/api/v1/experiments/{experiment_id}/commands" };

export const compareExperiments: Endpoint<
  never,
  "experiments",
  undefined,
  ExperimentComparison
> = { method: "GET", path: "/api/v1/comparison" };

export const listLeaders: Endpoint<
  never,
  "model" | "objective" | "namespace" | "limit",
  undefined,
  LeaderList
> = { method: "GET", path: "/api/v1/leaders" };

export const deleteExperiment: Endpoint<
  "experiment_id",
  never,
  undefined,
  Accepted
> = { method: "DELETE", path: "/api/v1/experiments/{experiment_id}" };

export const readLog: Endpoint<
  "experiment_id",
  "attempt" | "offset" | "lines",
  undefined,
  LogChunk
> = { method: "GET", path: "/api/v1/experiments/{experiment_id}/logs" };

export const getRequests: Endpoint<
  "experiment_id",
  "level",
  undefined,
  RequestsView
> = { method: "GET", path: "/api/v1/experiments/{experiment_id}/requests" };

export const getEngineSeries: Endpoint<
  "experiment_id",
  "start_at" | "end_at" | "points",
  undefined,
  EngineSeriesView
> = { method: "GET", path: "/api/v1/experiments/{experiment_id}/engine" };

export const exportTask: Endpoint<
  "task_id",
  never,
  undefined,
  unknown
> = { method: "GET", path: "/api/v1/tasks/{task_id}/export" };

export const exportExperiment: Endpoint<
  "experiment_id",
  never,
  undefined,
  unknown
> = { method: "GET", path: "/api/v1/experiments/{experiment_id}/export" };

export const importArchive: Endpoint<
  never,
  "namespace",
  unknown,
  ImportedView
> = { method: "POST", path: "/api/v1/imports" };

export const listImports: Endpoint<
  never,
  "limit" | "cursor",
  undefined,
  ImportedList
> = { method: "GET", path: "/api/v1/imports" };

export const addDataset: Endpoint<
  never,
  "name" | "file_name" | "namespace",
  unknown,
  DatasetView
> = { method: "POST", path: "/api/v1/datasets" };

export const listDatasets: Endpoint<
  never,
  "namespace" | "limit" | "cursor",
  undefined,
  DatasetList
> = { method: "GET", path: "/api/v1/datasets" };

export const getDataset: Endpoint<
  "dataset_name",
  "namespace",
  undefined,
  DatasetView
> = { method: "GET", path: "/api/v1/datasets/{dataset_name}" };

export const removeDataset: Endpoint<
  "dataset_name",
  "namespace" | "force",
  undefined,
  Accepted
> = { method: "DELETE", path: "/api/v1/datasets/{dataset_name}" };

export const listEngines: Endpoint<
  never,
  never,
  undefined,
  EngineList
> = { method: "GET", path: "/api/v1/engines" };

export const listPresets: Endpoint<
  never,
  "namespace" | "limit" | "cursor",
  undefined,
  PresetList
> = { method: "GET", path: "/api/v1/presets" };

export const getPreset: Endpoint<
  "preset_name",
  "namespace",
  undefined,
  PresetView
> = { method: "GET", path: "/api/v1/presets/{preset_name}" };

export const savePresets: Endpoint<
  never,
  "existing" | "namespace",
  PresetFile,
  Accepted
> = { method: "POST", path: "/api/v1/presets" };

export const savePreset: Endpoint<
  "preset_name",
  "namespace",
  PresetContent,
  PresetView
> = { method: "POST", path: "/api/v1/presets/{preset_name}" };

export const deletePreset: Endpoint<
  "preset_name",
  "namespace",
  undefined,
  Accepted
> = { method: "DELETE", path: "/api/v1/presets/{preset_name}" };

export const mergePresets: Endpoint<
  never,
  "namespace",
  MergeRequest,
  MergedPresets
> = { method: "POST", path: "/api/v1/merged-presets" };

export const listSecrets: Endpoint<
  never,
  "namespace" | "limit" | "cursor",
  undefined,
  SecretList
> = { method: "GET", path: "/api/v1/secrets" };

export const setSecret: Endpoint<
  "secret_name",
  "namespace",
  SecretValue,
  SecretView
> = { method: "POST", path: "/api/v1/secrets/{secret_name}" };

export const removeSecret: Endpoint<
  "secret_name",
  "namespace",
  undefined,
  Accepted
> = { method: "DELETE", path: "/api/v1/secrets/{secret_name}" };

export const rotateSecretKey: Endpoint<
  never,
  never,
  undefined,
  Accepted
> = { method: "POST", path: "/api/v1/secret-key/rotate" };

export const requestReservation: Endpoint<
  never,
  never,
  ReservationRequest,
  ReservationView
> = { method: "POST", path: "/api/v1/reservations" };

export const listReservations: Endpoint<
  never,
  "state" | "namespace" | "node_id" | "limit" | "cursor",
  undefined,
  ReservationList
> = { method: "GET", path: "/api/v1/reservations" };

export const getReservation: Endpoint<
  "reservation_id",
  "wait_seconds",
  undefined,
  ReservationView
> = { method: "GET", path: "/api/v1/reservations/{reservation_id}" };

export const endReservation: Endpoint<
  "reservation_id",
  "epoch" | "stopped" | "reason",
  undefined,
  ReservationView
> = { method: "DELETE", path: "/api/v1/reservations/{reservation_id}" };

export const renewReservation: Endpoint<
  "reservation_id",
  never,
  LeaseRenewal,
  Accepted
> = { method: "POST", path: "/api/v1/reservations/{reservation_id}/renew" };

export const exemptReservation: Endpoint<
  "reservation_id",
  never,
  IdleExemption,
  Accepted
> = { method: "POST", path: "/api/v1/reservations/{reservation_id}/idle-exemption" };

export const explainReservation: Endpoint<
  "reservation_id",
  never,
  undefined,
  Explanation
> = { method: "GET", path: "/api/v1/reservations/{reservation_id}/explain" };

export const whatIf: Endpoint<
  "reservation_id",
  never,
  GpuRequest,
  AvailabilityView
> = { method: "POST", path: "/api/v1/reservations/{reservation_id}/what-if" };

export const checkAvailability: Endpoint<
  never,
  "wait_seconds",
  GpuRequest,
  AvailabilityView
> = { method: "POST", path: "/api/v1/availability" };

export const getAvailability: Endpoint<
  never,
  "gpus" | "min_memory_mb" | "max_utilization_percent" | "wait_seconds",
  undefined,
  AvailabilityView
> = { method: "GET", path: "/api/v1/availability" };

export const estimate: Endpoint<
  never,
  never,
  unknown,
  EstimateView
> = { method: "POST", path: "/api/v1/estimate" };

export const check: Endpoint<
  never,
  never,
  CudaCheck | PrecisionCheck | DeviceConfigCheck | ModeCheck,
  CheckView
> = { method: "POST", path: "/api/v1/checks" };

export const listGpus: Endpoint<
  never,
  "node_id" | "use_cache" | "limit" | "cursor",
  undefined,
  GpuList
> = { method: "GET", path: "/api/v1/gpus" };

export const listNodes: Endpoint<
  never,
  "limit" | "cursor",
  undefined,
  NodeList
> = { method: "GET", path: "/api/v1/nodes" };

export const getNode: Endpoint<
  "node_id",
  never,
  undefined,
  NodeView
> = { method: "GET", path: "/api/v1/nodes/{node_id}" };

export const removeNode: Endpoint<
  "node_id",
  "end_held" | "reason",
  undefined,
  Accepted
> = { method: "DELETE", path: "/api/v1/nodes/{node_id}" };

export const listNodeEvents: Endpoint<
  "node_id",
  "before_id" | "limit",
  undefined,
  EventList
> = { method: "GET", path: "/api/v1/nodes/{node_id}/events" };

export const getGpuAllocMap: Endpoint<
  "node_id",
  never,
  undefined,
  GpuAllocMap
> = { method: "GET", path: "/api/v1/nodes/{node_id}/gpu-alloc-map" };

export const getAgent: Endpoint<
  "node_id",
  never,
  undefined,
  AgentView
> = { method: "GET", path: "/api/v1/nodes/{node_id}/agent" };

export const listAvailableGpus: Endpoint<
  "node_id",
  "min_memory_mb" | "max_utilization" | "use_cache",
  undefined,
  AvailableGpus
> = { method: "GET", path: "/api/v1/nodes/{node_id}/available-gpus" };

export const getGpu: Endpoint<
  "node_id" | "index",
  "use_cache",
  undefined,
  GpuDetail
> = { method: "GET", path: "/api/v1/nodes/{node_id}/gpus/{index}" };

export const startMonitoring: Endpoint<
  "node_id",
  never,
  MonitoringRequest,
  MonitoringView
> = { method: "POST", path: "/api/v1/nodes/{node_id}/monitoring" };

export const stopMonitoring: Endpoint<
  "node_id" | "monitoring_id",
  never,
  undefined,
  MonitoringView
> = { method: "DELETE", path: "/api/v1/nodes/{node_id}/monitoring/{monitoring_id}" };

export const listServedModels: Endpoint<
  "node_id",
  never,
  ServerAddress,
  ServedModels
> = { method: "POST", path: "/api/v1/nodes/{node_id}/served-models" };

export const askServer: Endpoint<
  "node_id",
  never,
  ServerQuestion,
  ServerAnswer
> = { method: "POST", path: "/api/v1/nodes/{node_id}/ask-server" };

export const setBurst: Endpoint<
  "node_id",
  never,
  BurstRequest,
  Accepted
> = { method: "POST", path: "/api/v1/nodes/{node_id}/burst" };

export const setPowerLimit: Endpoint<
  "node_id",
  never,
  PowerLimitRequest,
  Accepted
> = { method: "POST", path: "/api/v1/nodes/{node_id}/power-limit" };

export const cordon: Endpoint<
  "node_id",
  never,
  Withdrawal,
  Accepted
> = { method: "POST", path: "/api/v1/nodes/{node_id}/cordon" };

export const uncordon: Endpoint<
  "node_id",
  never,
  ReturnToService,
  Accepted
> = { method: "POST", path: "/api/v1/nodes/{node_id}/uncordon" };

export const drain: Endpoint<
  "node_id",
  never,
  Cause,
  Accepted
> = { method: "POST", path: "/api/v1/nodes/{node_id}/drain" };

export const admitNode: Endpoint<
  "node_id",
  never,
  undefined,
  Accepted
> = { method: "POST", path: "/api/v1/nodes/{node_id}/admit" };

export const inviteNode: Endpoint<
  "node_id",
  never,
  InvitationRequest,
  NodeInvitation
> = { method: "POST", path: "/api/v1/nodes/{node_id}/invite" };

export const join: Endpoint<
  never,
  never,
  JoinRequest,
  NodeCredentials
> = { method: "POST", path: "/api/v1/join" };

export const labelNode: Endpoint<
  "node_id",
  never,
  Relabelling,
  Accepted
> = { method: "POST", path: "/api/v1/nodes/{node_id}/labels" };

export const listNamespaces: Endpoint<
  never,
  never,
  undefined,
  NamespaceList
> = { method: "GET", path: "/api/v1/namespaces" };

export const setNamespace: Endpoint<
  "namespace",
  never,
  NamespaceRules,
  Accepted
> = { method: "POST", path: "/api/v1/namespaces/{namespace}" };

export const listMembers: Endpoint<
  "namespace",
  never,
  undefined,
  MemberList
> = { method: "GET", path: "/api/v1/namespaces/{namespace}/members" };

export const setMember: Endpoint<
  "namespace",
  never,
  MemberRequest,
  MemberView
> = { method: "POST", path: "/api/v1/namespaces/{namespace}/members" };

export const removeMember: Endpoint<
  "namespace" | "member_id",
  never,
  undefined,
  MemberView
> = { method: "DELETE", path: "/api/v1/namespaces/{namespace}/members/{member_id}" };

export const listDrifts: Endpoint<
  never,
  "node_id" | "ended" | "limit" | "cursor",
  undefined,
  DriftList
> = { method: "GET", path: "/api/v1/drifts" };

export const selectNode: Endpoint<
  never,
  "required_gpus" | "utilization_threshold" | "memory_threshold",
  undefined,
  NodeSelection
> = { method: "GET", path: "/api/v1/select-node" };

export const selectNodeFor: Endpoint<
  never,
  never,
  GpuRequest,
  NodeSelection
> = { method: "POST", path: "/api/v1/select-node" };

export const getClusterStatus: Endpoint<
  never,
  "limit" | "cursor",
  undefined,
  ClusterStatus
> = { method: "GET", path: "/api/v1/cluster/gpus" };

export const getNodeSummaries: Endpoint<
  never,
  "utilization_threshold" | "memory_threshold" | "limit" | "cursor",
  undefined,
  NodeSummaries
> = { method: "GET", path: "/api/v1/cluster/nodes" };

export const listClusterDevices: Endpoint<
  never,
  "limit" | "cursor",
  undefined,
  ClusterDeviceList
> = { method: "GET", path: "/api/v1/cluster/devices" };

export const listDecisions: Endpoint<
  never,
  "after_id" | "reservation_id" | "limit" | "before_id",
  undefined,
  DecisionList
> = { method: "GET", path: "/api/v1/decisions" };

export const tryPolicy: Endpoint<
  never,
  "policy" | "since_at",
  undefined,
  PolicyTrial
> = { method: "GET", path: "/api/v1/decisions/what-if-policy" };

export const replayDecisions: Endpoint<
  never,
  "from_id" | "reservation_id" | "limit",
  undefined,
  Replay
> = { method: "GET", path: "/api/v1/decisions/replay" };

export const listEvents: Endpoint<
  never,
  "after" | "limit" | "type" | "task_id" | "experiment_id" | "reservation_id",
  undefined,
  EventList
> = { method: "GET", path: "/api/v1/events" };

export const publishEvent: Endpoint<
  never,
  never,
  CustomEventRequest,
  Published
> = { method: "POST", path: "/api/v1/events" };

export const getSeries: Endpoint<
  never,
  "metric" | "range" | "start_at" | "end_at" | "node_id" | "device_uuid" | "experiment_id" | "pod_namespace" | "pod" | "gpu_model" | "kind_of_gpu" | "points" | "by" | "namespace",
  undefined,
  SeriesView
> = { method: "GET", path: "/api/v1/series" };

export const listPods: Endpoint<
  never,
  "range" | "start_at" | "end_at" | "node_id" | "kind_of_gpu" | "namespace",
  undefined,
  PodList
> = { method: "GET", path: "/api/v1/pods" };

export const getUsage: Endpoint<
  never,
  "start_at" | "end_at",
  undefined,
  ReportView
> = { method: "GET", path: "/api/v1/reports/usage" };

export const getGpuTime: Endpoint<
  never,
  "by" | "start_at" | "end_at" | "namespace" | "daily",
  undefined,
  UsageView
> = { method: "GET", path: "/api/v1/reports/gpu-time" };

export const getWaste: Endpoint<
  never,
  "start_at" | "end_at" | "namespace",
  undefined,
  WasteView
> = { method: "GET", path: "/api/v1/reports/waste" };

export const getIdle: Endpoint<
  never,
  "start_at" | "end_at" | "namespace" | "window_seconds" | "grace_seconds",
  undefined,
  IdleView
> = { method: "GET", path: "/api/v1/reports/idle" };

export const getWaits: Endpoint<
  never,
  "start_at" | "end_at" | "namespace",
  undefined,
  WaitsView
> = { method: "GET", path: "/api/v1/reports/waits" };

export const getFailures: Endpoint<
  never,
  "start_at" | "end_at" | "namespace",
  undefined,
  FailuresView
> = { method: "GET", path: "/api/v1/reports/failures" };

export const getTaskReport: Endpoint<
  "task_id",
  never,
  undefined,
  TaskReport
> = { method: "GET", path: "/api/v1/reports/tasks/{task_id}" };

export const getTaskReportAsMarkdown: Endpoint<
  "task_id",
  never,
  undefined,
  string
> = { method: "GET", path: "/api/v1/reports/tasks/{task_id}/markdown" };

export const getWaterfall: Endpoint<
  "subject_id",
  never,
  undefined,
  WaterfallView
> = { method: "GET", path: "/api/v1/reports/waterfall/{subject_id}" };

export const showMe: Endpoint<
  never,
  never,
  undefined,
  Me
> = { method: "GET", path: "/api/v1/me" };

export const logIn: Endpoint<
  never,
  never,
  Login,
  Me
> = { method: "POST", path: "/api/v1/login" };

export const makeLoginLink: Endpoint<
  never,
  never,
  undefined,
  LoginLink
> = { method: "POST", path: "/api/v1/login/links" };

export const logOut: Endpoint<
  never,
  never,
  undefined,
  undefined
> = { method: "POST", path: "/api/v1/logout" };

export const showSignIn: Endpoint<
  never,
  never,
  undefined,
  SignInOffer
> = { method: "GET", path: "/api/v1/sign-in" };

export const startDeviceSignIn: Endpoint<
  never,
  never,
  DeviceRequest,
  DeviceCode
> = { method: "POST", path: "/api/v1/sign-in/device" };

export const finishDeviceSignIn: Endpoint<
  never,
  never,
  DeviceAnswerRequest,
  DeviceAnswer
> = { method: "POST", path: "/api/v1/sign-in/device/answer" };

export const signOut: Endpoint<
  never,
  never,
  undefined,
  SignedOut
> = { method: "POST", path: "/api/v1/sign-out" };

export const createToken: Endpoint<
  never,
  never,
  TokenRequest,
  MadeToken
> = { method: "POST", path: "/api/v1/tokens" };

export const listTokens: Endpoint<
  never,
  "mine" | "limit" | "cursor",
  undefined,
  TokenList
> = { method: "GET", path: "/api/v1/tokens" };

export const revokeToken: Endpoint<
  "token_id",
  never,
  undefined,
  TokenView
> = { method: "DELETE", path: "/api/v1/tokens/{token_id}" };

export const listChanges: Endpoint<
  never,
  "token_id" | "caller" | "path" | "kind" | "action" | "result" | "about" | "start_at" | "end_at" | "limit" | "cursor",
  undefined,
  AuditList
> = { method: "GET", path: "/api/v1/audit" };

export const exportChanges: Endpoint<
  never,
  "start_at" | "end_at",
  undefined,
  unknown
> = { method: "GET", path: "/api/v1/audit/export" };

export const isAlive: Endpoint<
  never,
  never,
  undefined,
  Health
> = { method: "GET", path: "/healthz" };

export const isReady: Endpoint<
  never,
  never,
  undefined,
  Health
> = { method: "GET", path: "/readyz" };

export const metrics: Endpoint<
  never,
  never,
  undefined,
  string
> = { method: "GET", path: "/metrics" };

export const watchMetrics: Endpoint<
  never,
  "node_id" | "device_uuid" | "experiment_id" | "task_id" | "namespace" | "rate",
  undefined,
  GpuMetrics
> = { method: "GET", path: "/ws/metrics" };

export const watchEvents: Endpoint<
  never,
  "after" | "type" | "task_id" | "experiment_id" | "reservation_id",
  undefined,
  StoredEvent
> = { method: "GET", path: "/ws/events" };

export const watchLogs: Endpoint<
  never,
  "experiment_id",
  undefined,
  AttemptLogged
> = { method: "GET", path: "/ws/logs" };

export const followMetrics: Endpoint<
  never,
  "node_id" | "device_uuid" | "experiment_id" | "task_id" | "namespace" | "rate",
  undefined,
  unknown
> = { method: "GET", path: "/sse/metrics" };

export const followEvents: Endpoint<
  never,
  "after" | "type" | "task_id" | "experiment_id" | "reservation_id",
  undefined,
  unknown
> = { method: "GET", path: "/sse/events" };
