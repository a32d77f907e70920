// Written by `python -m schemas.export schemas/exported`; not to be edited.
// UUIDs and times (RFC 3339, UTC) are strings. What people send may leave out fields that have a
// default (`field?`); what the platform sends has every field, null where nothing is known.

/**
 * The command is committed. `revision` is the aggregate's after it.
 *
 * Answers to renewals also have `lease_ttl_seconds`, counted from the moment the renewal was sent,
 * and the grant's `epoch`.
 */
export interface Accepted {
  type: "accepted";
  command_id: string;
  revision: number;
  lease_ttl_seconds: number | null;
  epoch: number | null;
}

/**
 * Grant on a node that reported for the first time; before that nothing is granted there.
 *
 * An admitted node stays admitted until it is removed.
 */
export interface AdmitNode {
  type: "scheduler.admit_node";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
}

/**
 * An agent. `available`: a source is open and the newest reading succeeded.
 *
 * `interval_seconds` is the present one, shorter than the configured while a burst or a monitoring
 * asks for it.
 */
export interface AgentView {
  type: "telemetry.agent_view";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  boot_id: string;
  source: Source;
  available: boolean;
  message: string;
  gpu_count: number;
  sequence: number;
  interval_seconds: number;
}

/** The ledger, node by node. `next_after_node_id` is set where more nodes follow. */
export interface AllocationMap {
  type: "scheduler.allocation_map_view";
  nodes: NodeAllocation[];
  next_after_node_id: string | null;
}

/** What an archive is of. */
export const ArchiveKind = ["task", "experiment"] as const;
export type ArchiveKind = (typeof ArchiveKind)[number];

/**
 * Asks an executor for a server's answer to a conversation; answered by `ServerAnswer`.
 *
 * Nothing of it is stored.
 */
export interface AskServer {
  type: "executor.ask_server";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  /** http:// or https://, a host, and what stands before /v1, if anything */
  url: string;
  /** one line without control characters or marks of text direction */
  model: string;
  messages: ChatTurn[];
  max_tokens?: number;
  api_key?: string | null;
}

/**
 * The one outcome of an attempt, after confirmed teardown, or with its engine kept up.
 *
 * `benchmark` is there if and only if it succeeded. `windows` are the measured runs, in order;
 * `engine_simulated` marks an engine that only imitates a model, `executor_stopped` an attempt that
 * an orderly stop of its executor cut off. In a cluster `pod` has the GPUs, and each of
 * `other_pods` those of a further rank; null: unbound. `image_digest` is of the container image
 * that ran, as its runtime names it. With `kept_until` its engine is up under its reservation,
 * until then at the latest. `engine_use` is of an attempt that was to be measured on an engine kept
 * up.
 */
export interface AttemptFinished {
  type: "executor.attempt_finished";
  message_id: string;
  occurred_at: string;
  revision: number;
  experiment_id: string;
  attempt_id: string;
  attempt_number: number;
  task_id: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  reservation_id: string;
  epoch: number;
  outcome: AttemptOutcome;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  devices: DeviceGrant[];
  engine: EngineSpec;
  started_at: string;
  finished_at: string;
  failure: Failure | null;
  benchmark: BenchmarkResult | null;
  windows: Window[];
  phases: PhaseTiming[];
  engine_simulated: boolean;
  executor_stopped: boolean;
  pod: EnginePod | null;
  other_pods: EnginePod[];
  image_digest: string | null;
  kept_until: string | null;
  engine_use: EngineUse | null;
}

/**
 * Lines that an attempt's engine wrote, in order; lines that nothing received are read by
 * `ReadLog`.
 *
 * `offset` counts the bytes that the engine had written before the first of them. Where it is not
 * the `next_offset` of the message before, lines were left out: there were too many.
 */
export interface AttemptLogged {
  type: "executor.attempt_logged";
  observed_at: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  experiment_id: string;
  attempt_id: string;
  task_id: string;
  offset: number;
  next_offset: number;
  lines: string[];
}

/** How an attempt ended. `interrupted`, by a crash or a lost lease, says nothing about it. */
export const AttemptOutcome = ["succeeded", "failed", "cancelled", "interrupted"] as const;
export type AttemptOutcome = (typeof AttemptOutcome)[number];

/** An attempt's way; only `measuring` counts for the experiment's window. */
export const AttemptPhase = [
  "starting",
  "pulling",
  "loading",
  "warming_up",
  "measuring",
  "draining",
  "tearing_down",
] as const;
export type AttemptPhase = (typeof AttemptPhase)[number];

/** The attempt entered a phase; the pods as in `AttemptFinished`. */
export interface AttemptPhaseChanged {
  type: "executor.attempt_phase_changed";
  message_id: string;
  occurred_at: string;
  revision: number;
  experiment_id: string;
  attempt_id: string;
  attempt_number: number;
  task_id: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  reservation_id: string;
  epoch: number;
  phase: AttemptPhase;
  pod: EnginePod | null;
  other_pods: EnginePod[];
}

/** How far a pull or a benchmark is, from 0 to 1: of the image's bytes, or of all levels. */
export interface AttemptProgressed {
  type: "executor.attempt_progressed";
  observed_at: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  experiment_id: string;
  attempt_id: string;
  task_id: string;
  phase: AttemptPhase;
  fraction: number;
  message: string;
  completed_requests: number;
  failed_requests: number;
}

/** Journaled, lease confirmed, the engine is about to start. */
export interface AttemptStarted {
  type: "executor.attempt_started";
  message_id: string;
  occurred_at: string;
  revision: number;
  experiment_id: string;
  attempt_id: string;
  attempt_number: number;
  task_id: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  reservation_id: string;
  epoch: number;
  devices: DeviceGrant[];
}

/** One attempt; outcome null while it is under way. `message`: what it waits for to be ready. */
export interface AttemptView {
  type: "orchestrator.attempt";
  attempt_id: string;
  attempt_number: number;
  reservation_id: string;
  executor_id: string | null;
  outcome: AttemptOutcome | null;
  phase: string | null;
  failure: Failure | null;
  started_at: string | null;
  finished_at: string | null;
  cluster: ClusterPlacement | null;
  message: string;
  image_digest: string | null;
}

/**
 * One request that was to change something, that signed somebody in, or that was refused for what
 * it was to sign in with.
 *
 * `status` is the HTTP status of its answer; null where the gateway ended before it. `token_id` is
 * null, and `caller` empty, where no token is asked for. `before` and `after` are the fields of
 * what the path names, or of what was made, that differ from just before the request to just after
 * it, and always those that name it (`task_name`, `holder`, `request`); null where nothing was
 * there, or its owner did not answer in time.
 *
 * With the method NATS it is a command that came without this gateway: `path` is its tag and what
 * it names, `caller` the bus user that sent it. Not `proved`: only whose subject it came on is.
 *
 * `login` is by what the caller was known: `token`, `browser`, `bus`, or a provider; empty where
 * none is asked for. `address` is the connection's, or what a trusted proxy says. Refused sign-ins
 * of an address for one `reason` are one entry a minute, with their `count` and the first `path`;
 * those of further addresses are together under an empty one when there are very many.
 */
export interface AuditEntry {
  audit_id: number;
  at: string;
  token_id: string | null;
  caller: string;
  address: string;
  method: string;
  path: string;
  status: number | null;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
  proved: boolean;
  kind: AuditKind;
  login: string;
  count: number;
  reason: string;
}

/** What an entry of the audit log is about. */
export const AuditKind = ["change", "sign_in", "refused"] as const;
export type AuditKind = (typeof AuditKind)[number];

/** Entries of the audit log, newest first. */
export interface AuditList {
  type: "gateway.audit";
  next_cursor: string | null;
  entries: AuditEntry[];
}

/**
 * Whether a request would be granted now, on what, and every reason if not.
 *
 * `impossible`: this fleet can never serve it, so that waiting for it is in vain and a reservation
 * of it is rejected. `largest_memory_mb` is that of the largest device which could serve it but for
 * its memory, told where it is impossible, and of clusters; null: not known. The rest as in
 * `Explanation`.
 */
export interface AvailabilityView {
  type: "scheduler.availability_view";
  available: boolean;
  message: string;
  devices: DeviceGrant[];
  reasons: Reason[];
  expected_start_at: string | null;
  suggestion: Suggestion | null;
  reasons_left_out: Record<string, number>;
  impossible: boolean;
  largest_memory_mb: number | null;
}

/** Best score first. A GPU whose memory or utilization is unknown is not among them. */
export interface AvailableGpus {
  type: "scheduler.available_gpus_view";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  gpus: ScoredGpu[];
}

/** `outbox_age_seconds` is of the oldest unpublished event; 0 if all are published. */
export interface Backlog {
  type: "backlog";
  outbox_age_seconds: number;
}

/**
 * The benchmark. `max_time_per_iteration` is in minutes, as genai-bench counts.
 *
 * `max_error_rate` is the largest share of the requests of one load (a scenario at a concurrency)
 * that may fail, 0 to 1. An experiment in which more fail does not rank above one that served the
 * load, and one that served no load at all has failed.
 *
 * With `arrivals` those are the loads instead of `num_concurrency`: `closed(8)` requests at once,
 * or `poisson(20)`, `constant(20)` and `burst(20,5)` requests per second, or `trace`, whose times
 * are `arrival_trace_seconds`; the built-in generator makes them. `prefix_share` of every prompt is
 * the same in all requests of a level. With several `turns` those are loads of conversations, whose
 * every turn is sent with all before it, `think_seconds` after the answer.
 *
 * With `load_search` each experiment searches for the greatest load that meets
 * `optimization.constraints`, which is its score (`maximize_load`).
 *
 * `quality` absent: answers are compared where the task varies what may change them. With a
 * `dataset` prompts are of its texts instead of made ones.
 */
export interface BenchmarkConfig {
  /** one line without control characters or marks of text direction */
  task?: string;
  model_name?: string | null;
  model_tokenizer?: string | null;
  traffic_scenarios?: string[];
  num_concurrency?: number[];
  warmup_requests?: number;
  additional_params?: Record<string, unknown>;
  tool?: BenchmarkTool;
  max_error_rate?: number;
  arrivals?: string[];
  arrival_trace_seconds?: number[];
  prefix_share?: number;
  turns?: number;
  think_seconds?: number;
  load_search?: LoadSearch | null;
  quality?: QualityProbe | null;
  dataset?: DatasetSpec | null;
  trace?: TraceSpec | null;
  adapters?: string[];
  batch_size?: number;
  max_time_per_iteration?: number;
  max_requests_per_iteration?: number;
}

/**
 * An experiment's aggregate over its levels, as the autotuner stores it.
 *
 * Latencies are of the levels that did not fail: means of their means, smallest and largest of
 * their means, `p50` and `p90` means of theirs, `p99` that of the worst one. A failed level counts
 * as a throughput of 0. null where every level failed. Levels of the same load are one: that of all
 * their requests.
 *
 * `failed_levels` are those in which more than `max_error_rate` of the requests failed; null: a
 * release that knew no such limit measured it. `*_per_gpu` is null where the GPUs are unknown.
 * `max_goodput_per_gpu` are requests per second within every upper bound of a time in the task's
 * constraints, at the load where they are most.
 *
 * Of embeddings and rerank `*_total_throughput` is of input tokens, and what is of output tokens is
 * null, as `*_items_per_second` are elsewhere.
 *
 * With a `boundary` all of it is of the levels at one load, the greatest that met the constraints,
 * or the smallest if none did.
 */
export interface BenchmarkMetrics {
  mean_e2e_latency: number | null;
  min_e2e_latency: number | null;
  max_e2e_latency: number | null;
  p50_e2e_latency: number | null;
  p90_e2e_latency: number | null;
  p99_e2e_latency: number | null;
  mean_ttft: number | null;
  mean_tpot: number | null;
  mean_output_throughput: number | null;
  max_output_throughput: number | null;
  mean_total_throughput: number | null;
  max_total_throughput: number | null;
  total_requests: number;
  total_completed_requests: number;
  total_error_requests: number;
  success_rate: number;
  total_levels: number;
  failed_levels: FailedLevel[];
  max_error_rate: number | null;
  mean_output_throughput_per_gpu: number | null;
  max_total_throughput_per_gpu: number | null;
  max_goodput_per_gpu: number | null;
  tokens_per_joule: number | null;
  cost_per_million_tokens: number | null;
  boundary: LoadBoundary | null;
  mean_items_per_second: number | null;
  max_items_per_second: number | null;
  max_items_per_second_per_gpu: number | null;
}

/**
 * What one benchmark measured.
 *
 * `tool` labels who generated the load; `simulated` that the engine was a simulation; `over_tls`
 * that it was asked over TLS, whose cost is in the numbers; prompts were of `dataset`, requests of
 * `trace`. `load_host` sent the load, `engine` is what the engine says of itself, `canary` what the
 * tool measured of known times before; null: nothing was, as of a simulation.
 */
export interface BenchmarkResult {
  tool: BenchmarkTool;
  tool_version: string;
  simulated: boolean;
  levels: LevelResult[];
  metrics: BenchmarkMetrics;
  elapsed_seconds: number;
  quality: QualityAnswers | null;
  over_tls: boolean;
  dataset: DatasetUse | null;
  trace: TraceUse | null;
  load_host: LoadHost | null;
  engine: EngineFacts | null;
  canary: Canary | null;
}

/** One experiment's benchmark. What `load_search` finds meets `constraints`. */
export interface BenchmarkSpec {
  task?: string;
  model_name?: string | null;
  model_tokenizer?: string | null;
  traffic_scenarios?: string[];
  num_concurrency?: number[];
  warmup_requests?: number;
  additional_params?: Record<string, unknown>;
  tool?: BenchmarkTool;
  max_error_rate?: number;
  arrivals?: string[];
  arrival_trace_seconds?: number[];
  prefix_share?: number;
  turns?: number;
  think_seconds?: number;
  load_search?: LoadSearch | null;
  quality?: QualityProbe | null;
  dataset?: DatasetSpec | null;
  trace?: TraceSpec | null;
  adapters?: string[];
  batch_size?: number;
  max_time_per_level_seconds?: number;
  max_requests_per_level?: number;
  constraints?: string;
  seed?: number;
  max_in_flight?: number | null;
}

/**
 * Who generates the load.
 *
 * `auto` takes genai-bench where it is installed, else builtin, and never AIPerf; one task never
 * mixes tools.
 */
export const BenchmarkTool = ["auto", "genai-bench", "builtin", "aiperf"] as const;
export type BenchmarkTool = (typeof BenchmarkTool)[number];

/**
 * What keeps a level from being faster. `decode` is the memory's bandwidth, `queue` that no more
 * requests run at once, `client` the load generator.
 */
export const Bound = [
  "prefill",
  "decode",
  "kv_cache",
  "queue",
  "client",
  "power",
  "thermal",
] as const;
export type Bound = (typeof Bound)[number];

/**
 * The driver's own samples of one metric since the last tick, in brief.
 *
 * `first_at_us` and `last_at_us` are the driver's timestamps: microseconds since the epoch, by its
 * clock.
 */
export type Buffered = [
  metric: BufferedMetric,
  count: number,
  minimum: number,
  maximum: number,
  mean: number,
  first_at_us: number,
  last_at_us: number,
];

/** What the driver samples by itself between two ticks. */
export const BufferedMetric = ["utilization_percent", "power_draw_w"] as const;
export type BufferedMetric = (typeof BufferedMetric)[number];

/** Has a node sample faster for a while. */
export interface BurstRequest {
  interval_seconds?: number;
  duration_seconds: number;
  experiment_id?: string | null;
}

/**
 * The engine's prefix cache before a level. `verified`: a prompt that it held was computed again;
 * `failed`: it was not, or the engine refused.
 */
export const CacheReset = ["verified", "failed", "unsupported"] as const;
export type CacheReset = (typeof CacheReset)[number];

/**
 * What the load tool measured, on the host that sent the load, of a server of known times: means
 * beside the truth.
 */
export interface Canary {
  true_ttft_seconds: number;
  ttft_seconds: number;
  true_tpot_seconds: number;
  tpot_seconds: number;
}

/**
 * Stop an attempt, or the engine that an ended one left up.
 *
 * Accepted means it will not be started any more and a running one is being stopped. An attempt the
 * executor has never seen is remembered as cancelled, so that a late start is refused.
 */
export interface CancelExperiment {
  type: "executor.cancel_experiment";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a namespace, node_ID of a node, or _platform of its services and admins */
  speaker?: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  experiment_id: string;
  attempt_id: string;
  reason?: string;
}

/**
 * End a reservation in any state, or of `expected_revision` alone; what it was granted is freed
 * once its node confirmed the stop.
 */
export interface CancelReservation {
  type: "scheduler.cancel_reservation";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a namespace, node_ID of a node, or _platform of its services and admins */
  speaker?: string;
  reservation_id: string;
  reason?: string;
  expected_revision?: number | null;
}

/** Stop a task: what waits is withdrawn, what runs is stopped. */
export interface CancelTask {
  type: "orchestrator.cancel_task";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a namespace, node_ID of a node, or _platform of its services and admins */
  speaker?: string;
  task_id: string;
  /** one line without control characters or marks of text direction */
  reason?: string;
}

/** The same; for a search, values without an order. */
export interface Categorical {
  type: "categorical";
  values: (string | number | boolean | null)[];
}

/** Why an action is taken, and by whom, for people. */
export interface Cause {
  /** one line without control characters or marks of text direction */
  reason?: string;
  /** one line without control characters or marks of text direction */
  set_by?: string;
}

/** Cells of a device, from `first` to before `end`. */
export interface CellRange {
  first: number;
  end: number;
}

/** A part of a request that can give way; the closed set of what an explanation suggests. */
export const ChangeKind = [
  "fewer_gpus",
  "fewer_nodes",
  "fewer_shares",
  "less_memory",
  "higher_utilization_limit",
  "unbalanced_memory",
  "mixed_models",
  "less_cpu",
  "less_host_memory",
  "drop_selector",
  "shorter_duration",
  "higher_priority",
] as const;
export type ChangeKind = (typeof ChangeKind)[number];

/**
 * Remove the instances at `remove_starts` and make one of `profile` at `start`.
 *
 * `number` grows from one change of a device to the next: an older one changes nothing. Accepted
 * means that it is over, done or not; the next inventory says which (`MigLayout.change`).
 */
export interface ChangeMig {
  type: "telemetry.change_mig";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  device_uuid: string;
  number: number;
  /** such as 1g.10gb */
  profile: string;
  start: number;
  remove_starts?: number[];
}

/** Who speaks. */
export const ChatRole = ["system", "user", "assistant"] as const;
export type ChatRole = (typeof ChatRole)[number];

/** One message of a conversation. */
export interface ChatTurn {
  role: ChatRole;
  /** text without control characters or marks of text direction */
  content: string;
}

/**
 * The best verdict where any of the subjects will do, else the worst.
 *
 * `resources` are the custom devices that sound ConfigMaps define, by group and key.
 */
export interface CheckView {
  type: "gateway.check";
  verdict: Verdict;
  findings: Finding[];
  resources: ResourceDefinition[];
}

/** The long form of a parameter's values. */
export interface Choice {
  type: "choice";
  values: (string | number | boolean | null)[];
}

/**
 * Nodes that changed since the message before, whole, and those that have gone.
 *
 * Also sent without any, so that silence is not taken for rest. `revision` grows by one with each;
 * who misses one, or meets another `boot_id`, asks `GetCluster`. Not `is_complete`: a part could
 * not be listed, for `detail`; nothing may be selected by it.
 */
export interface ClusterChanged {
  type: "cluster.changed";
  observed_at: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  cluster_id: string;
  boot_id: string;
  revision: number;
  nodes: ClusterNode[];
  removed: string[];
  is_complete: boolean;
  detail: string;
}

/** A custom device that a Kubernetes cluster's ConfigMaps define. */
export interface ClusterDevice {
  /** a node's id: 1 to 128 letters, digits, - and _ */
  cluster_id: string;
  definition: ResourceDefinition;
}

/** Custom devices by cluster and key, as the clusters' executors offer them. */
export interface ClusterDeviceList {
  type: "gateway.cluster_devices";
  next_cursor: string | null;
  devices: ClusterDevice[];
}

/**
 * A GPU of a node; null readings are unknown, and count as idle for node selection unless
 * `is_stale`: there were some, too old to decide on.
 *
 * With `cluster_id` the node is that Kubernetes cluster's, which counts its GPUs: as many are
 * `allocatable` as it has left, the least used. `gpu_uuid` null: nothing has read it. `note` is why
 * none of the node's is given out whole.
 */
export interface ClusterGpu {
  node_name: string;
  gpu_index: number;
  gpu_uuid: string | null;
  gpu_model: string;
  allocatable: boolean;
  memory_total_mb: number | null;
  memory_used_mb: number | null;
  memory_usage_percent: number | null;
  utilization_percent: number | null;
  temperature_c: number | null;
  has_metrics: boolean;
  is_stale: boolean;
  cluster_id: string | null;
  note: string;
}

/** One GPU; null is unknown. */
export interface ClusterGpuReading {
  index: number;
  uuid: string | null;
  utilization_percent: number | null;
  memory_used_mb: number | null;
  memory_total_mb: number | null;
  temperature_c: number | null;
}

/**
 * A node with GPUs.
 *
 * `node_id` is under which a telemetry agent on it reports. `hostname` is its label
 * `kubernetes.io/hostname`, which node affinity names; null: it has none. `readings` are those of
 * other sources than an agent, read at `readings_at`. `cuda_driver_version` is the CUDA that its
 * driver serves, by its labels; null: they do not say. `allocatable_host` is what its pods may have
 * beside GPUs, `requested_host` what those that are bound ask for; null: it is not known. What
 * `vanished` pods may still use is not in `requested`.
 */
export interface ClusterNode {
  name: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  hostname: string | null;
  is_ready: boolean;
  is_cordoned: boolean;
  gpus: NodeGpus[];
  taints: NodeTaint[];
  gpu_model: string | null;
  gpu_memory_mb: number | null;
  readings: ClusterGpuReading[];
  readings_source: ReadingsSource | null;
  readings_at: string | null;
  cuda_driver_version: string | null;
  allocatable_host: HostAmounts | null;
  requested_host: HostAmounts;
  labels: Record<string, string>;
  vanished: VanishedPod[];
}

/** A node of a cluster by its name, and by its label `kubernetes.io/hostname`. */
export interface ClusterNodeName {
  node_name: string;
  hostname: string;
}

/**
 * Where in a Kubernetes cluster a reservation's GPUs are, of which no devices are named.
 *
 * `gpus` are those of each node: the first, and as many on each of `other_nodes`, by rank.
 * `node_name` null: the cluster's own scheduler chooses, for the reason in `message`. `hostname` is
 * the node's label `kubernetes.io/hostname`. Without `resource` it is the cluster's to say. `units`
 * of it, and `memory_units` of the memory that belongs to it, are a part of one GPU; null: whole
 * ones, or as many of what the resource counts. `gpu_model` is what the node's labels call its
 * GPUs. Where the cluster's own scheduler chooses, `avoided_hostnames` are nodes on which a unit of
 * `resource` is not what is asked for.
 */
export interface ClusterPlacement {
  /** a node's id: 1 to 128 letters, digits, - and _ */
  cluster_id: string;
  gpus: number;
  node_name?: string | null;
  hostname?: string | null;
  resource?: string | null;
  supply?: GpuSupply;
  message?: string;
  units?: number | null;
  memory_units?: number | null;
  gpu_model?: string | null;
  avoided_hostnames?: string[];
  other_nodes?: ClusterNodeName[];
}

/**
 * GPUs of one node of a Kubernetes cluster, which gives them out itself: we choose the node.
 *
 * A GPU is idle below both thresholds. Where no node has enough idle ones, and where `selects_node`
 * is false, the cluster's own scheduler chooses, unless `node_names` or the request's `gpu_models`
 * say which nodes may be taken. `resource` is an extended resource's name; null: what NVIDIA's
 * device plugin or DRA driver offers there. `cluster_id` null: any that is connected, of those in
 * the request's `node_ids`, if it has any. A node of `avoided_node_names` is chosen only where no
 * other one has enough idle GPUs.
 *
 * `pod_cpu_count`, `pod_memory_mb` and `pod_ephemeral_storage_mb` are what the pod asks of its node
 * beside GPUs; null: the request's `cpu_count` and `host_memory_mb`, and no storage. A node without
 * room for them is not chosen.
 *
 * `units` of `resource` are a part of one GPU: 30 of tencent.com/vcuda-core, of which 100 are one,
 * or one time slice; `memory_units` are of the memory that belongs to it. null: whole GPUs, or as
 * many of what the resource counts.
 */
export interface ClusterRequest {
  cluster_id?: string | null;
  selects_node?: boolean;
  utilization_threshold_percent?: number;
  memory_threshold_percent?: number;
  resource?: string | null;
  node_names?: string[];
  avoided_node_names?: string[];
  ranking?: NodeRanking;
  pod_cpu_count?: number | null;
  pod_memory_mb?: number | null;
  pod_ephemeral_storage_mb?: number | null;
  units?: number | null;
  memory_units?: number | null;
}

/** GPUs by node and index. `next_after_node_id` is the last node's name where more follow. */
export interface ClusterStatus {
  type: "scheduler.cluster_status_view";
  next_cursor: string | null;
  gpus: ClusterGpu[];
  next_after_node_id: string | null;
}

/**
 * Nodes as of `revision`; `next_after_name` is set where more nodes follow.
 *
 * A page of another revision than the one before: the asker starts anew.
 */
export interface ClusterView {
  type: "cluster.cluster_view";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  cluster_id: string;
  boot_id: string;
  revision: number;
  nodes: ClusterNode[];
  is_complete: boolean;
  detail: string;
  kubernetes_version: string;
  next_after_name: string | null;
}

/**
 * Who else had memory on a GPU, and for how long.
 *
 * Another reservation, or, without one, a process that no reservation is known of.
 */
export interface CoTenant {
  seconds: number;
  reservation_id: string | null;
  name: string | null;
}

/** One column. */
export interface ComparedExperiment {
  experiment_id: string;
  task_id: string;
  task_name: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  ordinal: number;
  state: string;
  objective: Objective;
  measured_at: string | null;
}

/**
 * A value of each experiment, in their order; null: not known, or not set.
 *
 * `differs` where not all are alike. Of results `values` have the number, and `best` is the place
 * of the best one; null: a tie, or nothing to choose.
 */
export interface ComparedRow {
  kind: RowKind;
  name: string;
  unit: string;
  texts: (string | null)[];
  values: (number | null)[];
  differs: boolean;
  best: number | null;
}

/**
 * A constraint at the `load` that is farthest from meeting it.
 *
 * `excess` is how far `actual` is beyond the bound, as a share of it: 0, it is met at every load;
 * null, it was not measured. Seconds, shares from 0 to 1, rates per second.
 */
export interface ConstraintCheck {
  constraint: string;
  load: string;
  actual: number | null;
  excess: number | null;
}

/** Custom devices of a container, as their definitions have it: counts by resource. */
export interface ContainerDevices {
  limits?: Record<string, number>;
  requests?: Record<string, number>;
}

/** What a task may set of the engine's container: its program and image are the executor's. */
export interface ContainerOverrides {
  resources?: ContainerResources;
}

/** What a container gets beside its GPUs, which are the grant's. */
export interface ContainerResources {
  requests?: Record<string, string>;
  limits?: Record<string, string>;
}

/** Numbers from `low` to `high`; with `log` as many between 1 and 10 as between 10 and 100. */
export interface ContinuousRange {
  type: "continuous";
  low: number;
  high: number;
  log?: boolean;
}

/**
 * Grant nothing new on a device (null: on the whole node). `set_by` says who asks, for people.
 */
export interface Cordon {
  type: "scheduler.cordon";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  device_uuid?: string | null;
  /** one line without control characters or marks of text direction */
  reason?: string;
  /** one line without control characters or marks of text direction */
  set_by?: string;
}

/** Who or what set a cordon. One for a loss or a restore lifts itself once that is over. */
export const CordonCause = [
  "operator",
  "fault",
  "gpu_lost",
  "node_lost",
  "mig",
  "restored",
] as const;
export type CordonCause = (typeof CordonCause)[number];

/**
 * Why a device or a node is out of service.
 *
 * `set_by` names the operator, if known. `until` says what lifts it, for people; `lifts_at` is
 * when, once that is only a matter of time. `since_at` null: longer ago than that was recorded.
 */
export interface CordonState {
  cause: CordonCause;
  until: string;
  reason: string;
  set_by: string;
  since_at: string | null;
  lifts_at: string | null;
}

/**
 * Whether a driver serves a CUDA runtime; without a `driver` those of all nodes are looked at.
 *
 * `runtime` is a version or what names one: `cu121`, `libcudart.so.12.4.127`, an image's tag,
 * `NVIDIA_REQUIRE_CUDA`. `driver` is the driver's version (550.144.03) or its CUDA (12.4).
 * `baseline` is the CUDA that a virtual GPU's library was made for.
 */
export interface CudaCheck {
  type: "cuda";
  runtime: string;
  driver?: string | null;
  mode?: GpuMode;
  baseline?: string | null;
  rules?: CudaRules;
}

/** `strict`: no driver below its runtime. `lenient`: as NVIDIA's compatibility guide allows. */
export const CudaRules = ["strict", "lenient"] as const;
export type CudaRules = (typeof CudaRules)[number];

/** An event that a user published through the API. */
export interface CustomEvent {
  type: "gateway.custom";
  message_id: string;
  occurred_at: string;
  revision: number;
  /** 1 to 128 letters, digits, - and _ */
  name: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  data: Record<string, unknown>;
}

/** An event to publish. */
export interface CustomEventRequest {
  /** 1 to 128 letters, digits, - and _ */
  name: string;
  namespace?: string | null;
  data?: Record<string, unknown>;
}

/**
 * Names of columns, or of keys of JSON objects, where they are not the usual ones.
 *
 * `answer` is a text whose length is asked for, `output_tokens` that length as a number.
 */
export interface DatasetColumns {
  prompt?: string | null;
  answer?: string | null;
  output_tokens?: string | null;
}

/**
 * What a file was found to hold: `format` is what it was read as, `rows` are prompts or a trace's
 * requests, `dropped` those that no task can use. `text` says all of it to people.
 *
 * Lengths are in words of a dataset, as no engine has counted it yet, and in tokens of a trace.
 */
export interface DatasetContents {
  kind: DatasetKind;
  format: DatasetFormat;
  rows: number;
  dropped: Record<string, number>;
  mean_input_length: number;
  mean_output_length: number;
  text: string;
}

/**
 * How a dataset is written; `auto` follows from its first bytes and its name.
 *
 * `sharegpt` and `messages` are conversations, in a JSON array or a line each; `prompts` is a JSON
 * object or text a line; `text` a prompt a line.
 */
export const DatasetFormat = ["auto", "sharegpt", "messages", "prompts", "csv", "text"] as const;
export type DatasetFormat = (typeof DatasetFormat)[number];

/** What a file can be used as: `benchmark.dataset` or `benchmark.trace`. */
export const DatasetKind = ["dataset", "trace"] as const;
export type DatasetKind = (typeof DatasetKind)[number];

/**
 * Uploaded files by name. `max_bytes` is how large one may be, `used_bytes` what those of the
 * namespace have together, and `quota_bytes` how much that may be.
 */
export interface DatasetList {
  type: "gateway.dataset_list";
  next_cursor: string | null;
  datasets: DatasetView[];
  max_bytes: number;
  used_bytes: number;
  quota_bytes: number;
}

/** A part of an uploaded file of `size_bytes`; all but the last have PIECE_BYTES. */
export interface DatasetPiece {
  type: "gateway.dataset_piece";
  content: string;
  size_bytes: number;
}

/**
 * A dataset.
 *
 * Of its rows those of equal prompts count once if `deduplicate`; those shorter than
 * `min_input_tokens` or longer than `max_input_tokens` are dropped; of the rest `sample` are drawn,
 * others by another `seed`. An answer is as long as the row's, at most `max_output_tokens`, and so
 * long where the row has none.
 */
export interface DatasetSpec {
  path?: string | null;
  url?: string | null;
  upload?: string | null;
  sha256?: string | null;
  format?: DatasetFormat;
  columns?: DatasetColumns;
  deduplicate?: boolean;
  min_input_tokens?: number;
  max_input_tokens?: number | null;
  max_output_tokens?: number;
  sample?: number;
  seed?: number;
}

/**
 * What a benchmark took of its dataset: the file's SHA-256, the `format` that it was read as, its
 * rows, those used, and why the rest was not.
 */
export interface DatasetUse {
  sha256: string;
  format: DatasetFormat;
  rows: number;
  used: number;
  dropped: Record<string, number>;
  length_unit: LengthUnit;
  mean_input_tokens: number;
  mean_output_tokens: number;
}

/**
 * An uploaded file by its name in a namespace. `used_by` are unfinished tasks that name it, where
 * one file is asked for.
 */
export interface DatasetView {
  type: "gateway.dataset";
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  /** 1 to 128 letters, digits, _, . and -, the first and last a letter or digit */
  name: string;
  /** 64 hexadecimal digits, in small */
  sha256: string;
  size_bytes: number;
  contents: DatasetContents;
  added_by: string;
  added_at: string;
  used_by: string[];
}

/**
 * Decisions, oldest first. `next_after_id` is set where more follow; of the newest first it is
 * `next_before_id`.
 *
 * A list ends early where it would not fit into a message; `inputs` that alone do not fit are given
 * as their counts by kind.
 */
export interface DecisionList {
  type: "scheduler.decisions_view";
  decisions: DecisionRecord[];
  next_after_id: number | null;
  next_before_id: number | null;
}

/**
 * One recorded turn of the decision engine: what was put in, and what came out.
 *
 * `inputs` and `outcomes` are the engine's own JSON; `keyframe` marks a record whose inputs are the
 * whole state, from which a replay can begin.
 */
export interface DecisionRecord {
  decision_id: number;
  term: number;
  decided_at: string;
  keyframe: boolean;
  inputs: unknown;
  outcomes: unknown;
}

/** The same for one experiment of a finished task. */
export interface DeleteExperiment {
  type: "orchestrator.delete_experiment";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a namespace, node_ID of a node, or _platform of its services and admins */
  speaker?: string;
  experiment_id: string;
  expected_revision?: number | null;
}

/** Tasks that took it keep what they took. */
export interface DeletePreset {
  type: "orchestrator.delete_preset";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  /** 1 to 128 letters, digits, _, . and -, the first and last a letter or digit */
  name: string;
  expected_revision?: number | null;
}

/**
 * Forget a finished task with its experiments and what was measured of them.
 *
 * Its events, its reservations and the GPU hours that it used stay on record. With
 * `expected_revision` it is refused unless that is the present one.
 */
export interface DeleteTask {
  type: "orchestrator.delete_task";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a namespace, node_ID of a node, or _platform of its services and admins */
  speaker?: string;
  task_id: string;
  expected_revision?: number | null;
}

/** Where the inference servers of a task run. */
export const DeploymentMode = ["process", "docker", "ome", "kubernetes", "endpoint"] as const;
export type DeploymentMode = (typeof DeploymentMode)[number];

/**
 * The best configuration, ready to be used; a form that it cannot have is empty.
 *
 * YAML but for `command_line`. `inference_service` is for OME, with its ServingRuntime.
 */
export interface Deployments {
  command_line: string;
  compose: string;
  inference_service: string;
  deployment: string;
  notes: string[];
}

/**
 * One device in the allocation map.
 *
 * `allocated` is what is held of its `capacity`, in shares, by its `holders`; `reservation_id`,
 * `namespace` and `holder` are those of the first. `kind` is "gpu" or "mig"; null readings are
 * unknown. `reasons` say why it would not be granted now, other than that it is held; their
 * sentences leave out the device.
 */
export interface DeviceAllocation {
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  uuid: string;
  index: number;
  name: string;
  state: DeviceState;
  allocated: number;
  health: HealthState;
  simulated: boolean;
  memory_total_mb: number | null;
  reservation_id: string | null;
  namespace: string | null;
  holder: string | null;
  reasons: Reason[];
  cordon: CordonState | null;
  kind: string;
  capacity: number;
  holders: DeviceHolder[];
  mig_profile: string | null;
}

/** What became of a code. `secret` is the session's token, which is shown this once. */
export interface DeviceAnswer {
  type: "gateway.device_answer";
  state: DeviceAnswerState;
  interval_seconds: number;
  secret: string | null;
  name: string;
}

/** Has the person confirmed this code? */
export interface DeviceAnswerRequest {
  code: string;
}

/** PENDING: ask again after the interval; SIGNED_IN: here is the token of the session. */
export const DeviceAnswerState = ["pending", "signed_in"] as const;
export type DeviceAnswerState = (typeof DeviceAnswerState)[number];

/**
 * What a person confirms: at `verification_url` they enter `user_code`, or open `complete_url`,
 * which has it. `code` is shown to the gateway every `interval_seconds`, until `ends_at`.
 */
export interface DeviceCode {
  type: "gateway.device_code";
  code: string;
  user_code: string;
  verification_url: string;
  complete_url: string | null;
  interval_seconds: number;
  ends_at: string;
}

/** Whether ConfigMaps, as Kubernetes has them in JSON, define custom devices. */
export interface DeviceConfigCheck {
  type: "device_config";
  config_maps: Record<string, unknown>[];
}

/** Taken out of service. */
export interface DeviceCordoned {
  type: "scheduler.device_cordoned";
  message_id: string;
  occurred_at: string;
  revision: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  device_uuid: string;
  reservation_id: string | null;
  reason: string;
}

/**
 * What does not change while a device is in its node, and its present health.
 *
 * `index` is unique in the node; MIG instances are numbered after the whole GPUs, and
 * `parent_uuid`, `mig_profile` (`1g.10gb`) and the instance ids say what they are. A GPU in MIG
 * mode is listed beside its instances. Power limits are what the device allows, not what is set.
 * `recent_faults` are the newest eight of this boot of the agent, oldest first. `mig_layout` is
 * that of a GPU in MIG mode whose agent may make instances.
 */
export interface DeviceFacts {
  uuid: string;
  index: number;
  name: string;
  memory_total_mb: number | null;
  pci_bus_id: string | null;
  serial: string | null;
  compute_capability: string | null;
  numa_node: number | null;
  mig_enabled: boolean | null;
  parent_uuid: string | null;
  simulated: boolean;
  health: HealthState;
  health_detail: string | null;
  mig_profile: string | null;
  gpu_instance_id: number | null;
  compute_instance_id: number | null;
  power_limit_default_w: number | null;
  power_limit_min_w: number | null;
  power_limit_max_w: number | null;
  pcie_generation_max: number | null;
  pcie_width_max: number | null;
  recent_faults: FaultSeen[];
  multiprocessor_count: number | null;
  mig_layout: MigLayout | null;
}

/** The stop was confirmed by the node, or by an administrator. */
export interface DeviceFreed {
  type: "scheduler.device_freed";
  message_id: string;
  occurred_at: string;
  revision: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  device_uuid: string;
  reservation_id: string | null;
  reason: string;
}

/**
 * A device handed to a reservation.
 *
 * `uuid` is what counts: the GPU's or MIG instance's; `index` was its node's. Without `share` all
 * of it is granted. `score`, `memory_free_mb` and `utilization_percent` are what it was chosen by.
 */
export interface DeviceGrant {
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  uuid: string;
  index: number;
  name: string;
  memory_total_mb?: number | null;
  simulated?: boolean;
  score?: number | null;
  mig_profile?: string | null;
  share?: DeviceShare | null;
  memory_free_mb?: number | null;
  utilization_percent?: number | null;
  link_groups?: number[];
}

/** A reservation that holds a device, or as much of it as `shares` says. */
export interface DeviceHolder {
  reservation_id: string;
  shares: number;
  namespace: string | null;
  holder: string | null;
  requester: string;
}

/** Its last holder's stop is not confirmed; not granted until then. */
export interface DeviceQuarantined {
  type: "scheduler.device_quarantined";
  message_id: string;
  occurred_at: string;
  revision: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  device_uuid: string;
  reservation_id: string | null;
  reason: string;
}

/** A sign-in of a program without a browser. `client` is what the session will be called. */
export interface DeviceRequest {
  /** 1 to 128 letters, digits, _, . and -, the first and last a letter or digit */
  client?: string;
}

/** One device's history; a bucket without a known reading is absent. */
export interface DeviceSeries {
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  device_uuid: string;
  index: number;
  points: SeriesPoint[];
  name: string;
  memory_total_mb: number | null;
}

/**
 * A part of a device: of its multiprocessors, and of its memory.
 *
 * `compute_percent` and `memory_mb` are the bounds that are enforced; null means that this is not
 * bounded. `shares` of the device are held, and with them `reserved_memory_mb`, enforced or not.
 * `cells` are which of its 10,000, so that a node fences what had the same ones; empty: an older
 * release, which does not say.
 */
export interface DeviceShare {
  kind: ShareKind;
  compute_percent?: number | null;
  memory_mb?: number | null;
  shares?: number | null;
  reserved_memory_mb?: number | null;
  cells?: CellRange[];
}

/** Whether a device can be had. Only `free` is granted to a request that has no wishes. */
export const DeviceState = ["free", "held", "quarantined", "cordoned", "unavailable"] as const;
export type DeviceState = (typeof DeviceState)[number];

/** Back in service. */
export interface DeviceUncordoned {
  type: "scheduler.device_uncordoned";
  message_id: string;
  occurred_at: string;
  revision: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  device_uuid: string;
  reservation_id: string | null;
  reason: string;
}

/** Spread of one measure over a level's completed requests; `stddev` is the population's. */
export interface Distribution {
  min: number;
  max: number;
  mean: number;
  stddev: number;
  sum: number;
  p25: number;
  p50: number;
  p75: number;
  p90: number;
  p95: number;
  p99: number;
}

/**
 * The first `character` (from 0) at which an answer is another, and what follows there.
 *
 * `prompt` counts from 1; `got` null: there was no answer.
 */
export interface Divergence {
  prompt: number;
  character: number;
  expected: string;
  got: string | null;
}

/** Cordon a node and end its reservations. `set_by` says who asks, for people. */
export interface Drain {
  type: "scheduler.drain";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  /** one line without control characters or marks of text direction */
  reason?: string;
  /** one line without control characters or marks of text direction */
  set_by?: string;
}

/** A disagreement of the three ledgers; `ended_at` null while it lasts. */
export interface Drift {
  drift_id: string;
  drift: DriftKind;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  since_at: string;
  age_seconds: number;
  action: DriftAction;
  detail: string;
  device_uuid: string | null;
  reservation_id: string | null;
  pids: number[];
  ended_at: string | null;
}

/** What the scheduler does about a drift by itself. */
export const DriftAction = ["none", "release", "fence", "avoid", "stop_granting"] as const;
export type DriftAction = (typeof DriftAction)[number];

/** The ledgers disagree. */
export interface DriftDetected {
  type: "scheduler.drift_detected";
  message_id: string;
  occurred_at: string;
  revision: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  drift: DriftKind;
  device_uuid: string | null;
  reservation_id: string | null;
  detail: string;
  drift_id: string | null;
  since_at: string | null;
  action: DriftAction;
  pids: number[];
}

/** How reserved, running and physically used disagree. */
export const DriftKind = [
  "ghost_reservation",
  "orphan_workload",
  "squatter",
  "underuse",
  "stale_agent",
  "clock_skew",
] as const;
export type DriftKind = (typeof DriftKind)[number];

/** Drifts, oldest first. */
export interface DriftList {
  type: "scheduler.drifts_view";
  next_cursor: string | null;
  drifts: Drift[];
}

/** They agree again. */
export interface DriftResolved {
  type: "scheduler.drift_resolved";
  message_id: string;
  occurred_at: string;
  revision: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  drift: DriftKind;
  device_uuid: string | null;
  reservation_id: string | null;
  detail: string;
  drift_id: string | null;
  since_at: string | null;
  action: DriftAction;
  pids: number[];
}

/**
 * Why a row was not used. `too_large`: more than a row may have; `not_sampled`: enough others were
 * drawn.
 */
export const DropReason = [
  "empty",
  "too_large",
  "duplicate",
  "too_short",
  "too_long",
  "not_sampled",
] as const;
export type DropReason = (typeof DropReason)[number];

/**
 * Where the server answers: one address, or a list to compare, each measured alone.
 *
 * `api_key` is the name of a secret of the task's `secrets`, sent as a bearer token. No load has
 * more than `max_concurrency` requests in flight, nor sends more than `max_requests_per_second`.
 *
 * `node` is the agent's node on which the server runs: what its GPUs read belongs to the experiment
 * then. Which of its GPUs follows from `gpu_indices`, from the `pod` (its name) or the `container`
 * (the beginning of its id) that has them; without any of these all of the node's are meant.
 */
export interface EndpointConfig {
  url: string | string[];
  api_key?: string | null;
  max_concurrency?: number | null;
  max_requests_per_second?: number | null;
  node?: string | null;
  gpu_indices?: number[];
  pod?: string | null;
  container?: string | null;
}

/** Where an energy comes from: the devices' counters, or their power over time. */
export const EnergySource = ["counter", "power", "mixed"] as const;
export type EnergySource = (typeof EnergySource)[number];

/**
 * An engine of this release. The rest is how a first task of it begins.
 *
 * `flags` are first those with a note, then the others by name; `version` is the one that they were
 * read from, empty for a server of this platform.
 */
export interface EngineChoice {
  name: string;
  title: string;
  simulated: boolean;
  version: string;
  model: string;
  deployment_mode: DeploymentMode;
  parameters: Record<string, unknown>;
  flags: EngineFlag[];
}

/**
 * The server that one experiment measures, with its GPUs where an agent sees them.
 *
 * `devices` are read, not granted: whoever runs the server holds them.
 */
export interface EngineEndpoint {
  url: string;
  api_key?: string | null;
  devices?: DeviceGrant[];
}

/** What an engine says of itself: its version, and the arguments that it runs with. */
export interface EngineFacts {
  version: string;
  arguments: Record<string, string>;
}

/**
 * A flag that a task may give an engine.
 *
 * `form` says in words what its value may be. `help` and `default` are empty for a flag that no
 * note explains; `default` is a value, or what decides it.
 */
export interface EngineFlag {
  name: string;
  form: string;
  help?: string;
  default?: string;
  choices?: string[];
}

/** Every engine of this release, by name. */
export interface EngineList {
  type: "gateway.engines";
  engines: EngineChoice[];
}

/** What an engine's history shows; rates are over the time between two samples. */
export const EngineMetric = [
  "running",
  "waiting",
  "kv_cache_percent",
  "preemptions_per_s",
  "prefix_hit_percent",
  "prompt_tokens_per_s",
  "generation_tokens_per_s",
  "accept_length",
] as const;
export type EngineMetric = (typeof EngineMetric)[number];

/** A parameter of known form, under its hyphenated name. */
export interface EngineParameter {
  name: string;
  kind: ParameterKind;
  minimum?: number | null;
  maximum?: number | null;
  choices?: string[];
}

/**
 * The container of a cluster that an engine runs in, bound to a node.
 *
 * `node_id` is under which a telemetry agent on that node reports, `gpus` how many it asks for;
 * `rank` is which of the pods of an engine over several nodes it is.
 */
export interface EnginePod {
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  namespace: string;
  pod: string;
  container: string;
  gpus: number;
  rank: number;
}

/**
 * An engine's `/metrics` at one moment, all its replicas together.
 *
 * Requests and the share of its KV cache in use (of the fullest replica) are of that moment, the
 * rest counts since the engine's start. `accept_length` is how many tokens a step of speculative
 * decoding gave in the mean.
 */
export interface EngineReading {
  running: number | null;
  waiting: number | null;
  kv_cache_percent: number | null;
  preemptions: number | null;
  prefix_queried_tokens: number | null;
  prefix_hit_tokens: number | null;
  prompt_tokens: number | null;
  generation_tokens: number | null;
  accept_length: number | null;
}

/**
 * What a task may give to an engine.
 *
 * With `is_closed` there are no parameters beside `parameters`. `refused` are those that are not a
 * task's to set, by the reason. Of the others it may give those on the list named `allow_list`
 * (shared/engines; empty: none, null: whatever the engine knows), and those in `allowed` by the
 * operator's word, in which "*" is all.
 */
export interface EngineRules {
  parameters?: EngineParameter[];
  is_closed?: boolean;
  refused?: Record<string, string[]>;
  task_fields?: Record<string, TaskField>;
  allow_list?: string | null;
  allowed?: string[];
}

/**
 * By sequence, as columns of equal length, as `EngineReading` has them.
 *
 * Times are microseconds since 1970.
 */
export interface EngineSampleList {
  type: "results.engine_samples";
  next_cursor: string | null;
  attempt_id: string | null;
  engine: string | null;
  sequence: number[];
  observed_at_us: number[];
  phase: AttemptPhase[];
  running: (number | null)[];
  waiting: (number | null)[];
  kv_cache_percent: (number | null)[];
  preemptions: (number | null)[];
  prefix_queried_tokens: (number | null)[];
  prefix_hit_tokens: (number | null)[];
  prompt_tokens: (number | null)[];
  generation_tokens: (number | null)[];
  accept_length: (number | null)[];
}

/**
 * An attempt's engine, asked by its executor. Identity: attempt, sequence.
 *
 * `engine` is whose names it speaks; null: it has no metrics that are known, which is published
 * once.
 */
export interface EngineSampled {
  type: "telemetry.engine_sampled";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  experiment_id: string;
  attempt_id: string;
  task_id: string;
  reservation_id: string;
  epoch: number;
  sequence: number;
  observed_at: string;
  interval_seconds: number;
  phase: AttemptPhase;
  engine: string | null;
  reading: EngineReading;
}

/**
 * A metric that the engine does not report is absent, as is a bucket without a known value.
 *
 * `engine` is whose names it speaks. null: it has no metrics that are known, or, without an
 * `attempt_id`, none have come.
 */
export interface EngineSeriesView {
  type: "results.engine_series_view";
  experiment_id: string;
  attempt_id: string | null;
  engine: string | null;
  bucket_seconds: number;
  series: Record<string, SeriesPoint[]>;
}

/**
 * What to serve. `parameters` are the engine's flags with one value each; `model` an id or a path.
 * `image_tag` is of the engine's image, null the one that the executor prefers; `kubernetes` of a
 * cluster; `endpoint` of a server that runs already. `env` are variables that the task sets.
 */
export interface EngineSpec {
  runtime: Runtime;
  engine: string;
  model: string;
  parameters?: Record<string, unknown>;
  image_tag?: string | null;
  kubernetes?: KubernetesSpec | null;
  endpoint?: EngineEndpoint | null;
  env?: Record<string, string>;
}

/**
 * The best configuration of one of several engines, by the names that tell it from the others.
 *
 * `behind_percent` is of the winner's mean; chance and measuring together part the two by
 * `noise_percent` at most: null, by an unknown amount. `is_decided`: the winner is better by more.
 */
export interface EngineStanding {
  base_runtime: string;
  ordinal: number;
  runs: number;
  mean_score: number;
  runtime_image_tag: string | null;
  model: string | null;
  behind_percent: number;
  noise_percent: number | null;
  is_decided: boolean;
}

/**
 * Whether an attempt was measured on the engine that was kept up for it, its state reset.
 *
 * `reset` says how; `fresh_because` why another engine was started instead.
 */
export interface EngineUse {
  is_kept: boolean;
  reset: string;
  fresh_because: string;
}

/**
 * Why something was refused.
 *
 * HTTP status and exit code follow from `HTTP_STATUS` and `EXIT_CODE`.
 */
export const ErrorCode = [
  "bad_request",
  "unauthenticated",
  "forbidden",
  "not_found",
  "conflict",
  "changed_since",
  "name_taken",
  "command_id_reused",
  "stale_epoch",
  "lease_lost",
  "unsatisfiable",
  "unsupported",
  "still_running",
  "too_large",
  "too_many_requests",
  "timeout",
  "unavailable",
  "internal",
] as const;
export type ErrorCode = (typeof ErrorCode)[number];

/**
 * How many GPUs would this task configuration need? Answered by `EstimateView`.
 *
 * `task_config` is the free form of the requirements: `model.id_or_path`, `parameters`,
 * `parallel_config`.
 */
export interface EstimateRequirements {
  type: "scheduler.estimate";
  task_config: Record<string, unknown>;
}

/**
 * `world_size = tp * pp * max(dp, dcp, cp)`, of the largest combination; memory per GPU by model
 * name.
 */
export interface EstimateView {
  type: "scheduler.estimate_view";
  gpus: number;
  min_memory_mb: number;
  world_size: number;
}

/**
 * Events in the order of their cursors. `cursor` is the last looked at: ask after it next.
 *
 * Those of a node are the newest first: ask before it next.
 */
export interface EventList {
  type: "gateway.events";
  events: StoredEvent[];
  cursor: number;
}

/**
 * What an executor offers: at its start and every 30 s.
 *
 * `largest_epoch` is of all it was given; `address` is where other nodes reach its engines.
 * `endpoint_engines` are those of which it measures servers that run already: beside `runtimes`,
 * since the release before knows no such runtime.
 */
export interface ExecutorReported {
  type: "executor.executor_reported";
  message_id: string;
  occurred_at: string;
  revision: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  boot_id: string;
  runtimes: RuntimeOffer[];
  benchmark_tools: string[];
  largest_epoch: number;
  address: string | null;
  endpoint_engines: string[];
}

/** Never find a reservation idle before `until_at`, at most 30 days from now. */
export interface ExemptReservation {
  type: "scheduler.exempt_reservation";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a namespace, node_ID of a node, or _platform of its services and admins */
  speaker?: string;
  reservation_id: string;
  /** one line without control characters or marks of text direction */
  reason: string;
  until_at: string;
}

/** What becomes of a preset whose name is saved again. */
export const ExistingPreset = ["refuse", "keep", "replace"] as const;
export type ExistingPreset = (typeof ExistingPreset)[number];

/** Withdrawn or stopped on request. */
export interface ExperimentCancelled {
  type: "orchestrator.experiment_cancelled";
  message_id: string;
  occurred_at: string;
  revision: number;
  experiment_id: string;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  ordinal: number;
  reason: string;
}

/**
 * How to start an experiment's engine, and how to send it the load of each of its levels.
 *
 * `base_url` is where the started engine listens on this host; null: nobody knows its port, and
 * commands have an example in its place. Without a stored benchmark `levels` are those of the task;
 * a load search has none then.
 */
export interface ExperimentCommands {
  type: "gateway.experiment_commands";
  experiment_id: string;
  base_url: string | null;
  deployments: Deployments;
  levels: LevelCommands[];
}

/** `cautions` say what differs beside the parameters, so that results may differ by it. */
export interface ExperimentComparison {
  type: "gateway.comparison";
  experiments: ComparedExperiment[];
  rows: ComparedRow[];
  cautions: string[];
}

/** Forgotten on request. */
export interface ExperimentDeleted {
  type: "orchestrator.experiment_deleted";
  message_id: string;
  occurred_at: string;
  revision: number;
  experiment_id: string;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  ordinal: number;
}

/**
 * An experiment joined to its measurements, and while it waits to the reasons why.
 *
 * `benchmark`, `explanation` and `failure_memory` are those of one experiment; lists leave them
 * out. `failure_memory`: what its GPUs' memory did before its last attempt failed for want of it.
 * `image_digest` is of the container image that it was measured with, else of its newest attempt
 * that had one; `dataset` what its prompts were of, `trace` its requests. `missing` names services
 * whose part is not there because they did not answer.
 */
export interface ExperimentDetail {
  type: "orchestrator.experiment";
  experiment_id: string;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  ordinal: number;
  state: ExperimentState;
  revision: number;
  parameters: Record<string, unknown>;
  engine: EngineSpec;
  request: GpuRequest;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
  reservation_id: string | null;
  executor_id: string | null;
  objective_score: number | null;
  metrics: MeasuredMetrics | null;
  gpu_info: GpuInfo | null;
  gpu_monitoring: GpuMonitoring | null;
  attempts: AttemptView[];
  interrupted_attempts: number;
  failure: Failure | null;
  waiting_reasons: Reason[];
  reason: string;
  failed_attempts: number;
  task_name: string;
  imported_at: string | null;
  proposal: string;
  memory_source: MemorySource | null;
  slo: SloVerdict | null;
  run: RunInfo;
  preflight: Finding[];
  predicted_score: number | null;
  prepared: string;
  memory_estimate: MemoryEstimate | null;
  benchmark: BenchmarkResult | null;
  explanation: Explanation | null;
  missing: string[];
  failure_memory: GpuMemoryTrend[];
  image_digest: string | null;
  dataset: DatasetUse | null;
  trace: TraceUse | null;
}

/** Experiments, newest task first, then by ordinal. */
export interface ExperimentDetails {
  type: "orchestrator.experiments";
  next_cursor: string | null;
  experiments: ExperimentDetail[];
}

/** Ended without a measurement. */
export interface ExperimentFailed {
  type: "orchestrator.experiment_failed";
  message_id: string;
  occurred_at: string;
  revision: number;
  experiment_id: string;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  ordinal: number;
  reason: string;
  failure: Failure | null;
}

/** Newest task first, then by ordinal. */
export interface ExperimentList {
  type: "orchestrator.experiments";
  next_cursor: string | null;
  experiments: ExperimentView[];
}

/**
 * An attempt was interrupted, or failed in a way that may pass, and will be repeated, not on
 * `avoided_node_ids` if others can run it. `failure_kind` is why it did not succeed.
 */
export interface ExperimentRetrying {
  type: "orchestrator.experiment_retrying";
  message_id: string;
  occurred_at: string;
  revision: number;
  experiment_id: string;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  ordinal: number;
  attempt_number: number;
  reason: string;
  failure_kind: FailureKind | null;
  avoided_node_ids: string[];
}

/** The executor started the attempt. */
export interface ExperimentRunning {
  type: "orchestrator.experiment_running";
  message_id: string;
  occurred_at: string;
  revision: number;
  experiment_id: string;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  ordinal: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  attempt_id: string;
}

/** GPUs granted, the command to start is on its way. With `cluster` there are no `devices`. */
export interface ExperimentStarting {
  type: "orchestrator.experiment_starting";
  message_id: string;
  occurred_at: string;
  revision: number;
  experiment_id: string;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  ordinal: number;
  reservation_id: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  devices: DeviceGrant[];
  cluster: ClusterPlacement | null;
}

/** pending -> waiting -> starting -> running -> succeeded | failed | cancelled. */
export const ExperimentState = [
  "pending",
  "waiting",
  "starting",
  "running",
  "succeeded",
  "failed",
  "cancelled",
] as const;
export type ExperimentState = (typeof ExperimentState)[number];

/** Smaller scores are better for minimize_*, larger for maximize_*; null: nothing to score. */
export interface ExperimentSucceeded {
  type: "orchestrator.experiment_succeeded";
  message_id: string;
  occurred_at: string;
  revision: number;
  experiment_id: string;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  ordinal: number;
  objective_score: number | null;
  metrics: BenchmarkMetrics;
}

/**
 * The measurements of a succeeded attempt are stored, joined to its GPU samples.
 *
 * `peak_memory_mb` is the most that one of its GPUs had in use over the whole run; null: unknown.
 * `driver_versions` are those of its nodes, see `SummaryView`.
 */
export interface ExperimentSummarized {
  type: "results.experiment_summarized";
  message_id: string;
  occurred_at: string;
  revision: number;
  experiment_id: string;
  attempt_id: string;
  task_id: string;
  version: number;
  metrics: BenchmarkMetrics;
  gpu_monitoring: GpuMonitoring;
  peak_memory_mb: number | null;
  driver_versions: Record<string, string>;
}

/**
 * As the orchestrator has it; the gateway adds the results' `gpu_monitoring`.
 *
 * `failed_attempts` are counted apart from interrupted ones. `objective_score` leaves the failed
 * levels of `metrics` out: it compares only experiments that failed at the same loads. `proposal`:
 * why a search chose it. `memory_source` is that of `request.min_memory_mb`; null: unknown.
 * `prepared` is what was made ready for it where it may start, while it waits for GPUs.
 */
export interface ExperimentView {
  type: "orchestrator.experiment";
  experiment_id: string;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  ordinal: number;
  state: ExperimentState;
  revision: number;
  parameters: Record<string, unknown>;
  engine: EngineSpec;
  request: GpuRequest;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
  reservation_id: string | null;
  executor_id: string | null;
  objective_score: number | null;
  metrics: BenchmarkMetrics | null;
  gpu_info: GpuInfo | null;
  gpu_monitoring: GpuMonitoring | null;
  attempts: AttemptView[];
  interrupted_attempts: number;
  failure: Failure | null;
  waiting_reasons: Reason[];
  reason: string;
  failed_attempts: number;
  task_name: string;
  imported_at: string | null;
  proposal: string;
  memory_source: MemorySource | null;
  slo: SloVerdict | null;
  run: RunInfo;
  preflight: Finding[];
  predicted_score: number | null;
  prepared: string;
  memory_estimate: MemoryEstimate | null;
}

/** Asked for GPUs under this reservation. */
export interface ExperimentWaiting {
  type: "orchestrator.experiment_waiting";
  message_id: string;
  occurred_at: string;
  revision: number;
  experiment_id: string;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  ordinal: number;
  reservation_id: string;
  attempt_number: number;
}

/** Why does it wait? Answered by `Explanation`. */
export interface ExplainReservation {
  type: "scheduler.explain";
  names_of?: string[] | null;
  reservation_id: string;
}

/**
 * Every reason that blocks a request; empty if and only if it is granted or active.
 *
 * `expected_start_at`, on `expected_node_ids`, is worked out from leases and expected durations;
 * null if one that matters is unknown. `suggestion` is null if nothing that the request can give up
 * would help. On a large fleet only some reasons are listed with their sentence, every code among
 * them; `reasons_left_out` counts the rest.
 */
export interface Explanation {
  type: "scheduler.explanation";
  reservation_id: string;
  state: ReservationState;
  queue_position: number | null;
  queue_length: number;
  reasons: Reason[];
  summary: string;
  expected_start_at: string | null;
  suggestion: Suggestion | null;
  reasons_left_out: Record<string, number>;
  expected_node_ids: string[];
}

/**
 * A load that was not served: nothing completed, or more requests failed than may.
 *
 * Or one that says nothing, for the reason in `set_aside`.
 */
export interface FailedLevel {
  scenario: string;
  num_concurrency: number;
  num_requests: number;
  num_completed_requests: number;
  arrivals: string | null;
  set_aside: string | null;
}

/**
 * A kind for programs, a sentence for people, and the engine's last log lines.
 *
 * `hint` is what to do about it; `phase` is where the attempt was. `is_final`: the task itself is
 * the cause, so that no other try would end otherwise.
 */
export interface Failure {
  kind: FailureKind;
  message: string;
  exit_code: number | null;
  log_tail: string[];
  hint: string;
  phase: AttemptPhase | null;
  is_final: boolean;
}

/**
 * Why an attempt did not succeed; the closed set of causes.
 *
 * `out_of_memory` is the host's or the container's, `gpu_out_of_memory` a device's;
 * `parameters_not_applied`: a cluster runs the engine otherwise than it was asked to.
 */
export const FailureKind = [
  "engine_missing",
  "bad_parameter",
  "model_missing",
  "secret_missing",
  "runtime_unavailable",
  "image_missing",
  "image_pull_failed",
  "gpu_unavailable",
  "engine_exited",
  "out_of_memory",
  "gpu_out_of_memory",
  "cuda_error",
  "port_taken",
  "power_limit_refused",
  "sm_clock_refused",
  "disk_full",
  "readiness_timeout",
  "unschedulable",
  "parameters_not_applied",
  "rank_failed",
  "node_lost",
  "benchmark_failed",
  "timeout",
  "lease_lost",
  "executor_restarted",
  "cancelled",
  "internal",
] as const;
export type FailureKind = (typeof FailureKind)[number];

/**
 * One reason. `of` is `attempt` or `reservation`; `message` is the newest one's, and so is
 * `memory`, where that one failed for want of memory.
 */
export interface FailureLine {
  of: string;
  reason: string;
  count: number;
  last_at: string;
  message: string;
  memory: GpuMemoryTrend[];
}

/** Most frequent first. */
export interface FailuresView {
  type: "results.failures_view";
  start_at: string;
  end_at: string;
  lines: FailureLine[];
}

/**
 * A fault of a device that an agent published as an event, repeated for consumers that missed it.
 *
 * `event_id` is the `message_id` of that event.
 */
export interface FaultSeen {
  event_id: string;
  occurred_at: string;
  change: HealthKind;
  action: HealthAction;
  xid: number | null;
  detail: string;
}

/**
 * Stop whatever runs under a reservation.
 *
 * Accepted means nothing labelled with it runs, and nothing will start. Refused with
 * `still_running` while the stop is under way.
 */
export interface FenceReservation {
  type: "executor.fence_reservation";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  reservation_id: string;
  epoch: number;
}

/**
 * What a rule says of one subject: a node, a GPU, a place in a file.
 *
 * `action` is what to do about it, empty where nothing is to be done; `source` is who says so.
 */
export interface Finding {
  verdict: Verdict;
  rule: string;
  message: string;
  action: string;
  source: string;
  subject: string;
}

/**
 * One bucket of all GPUs together: the lowest mean of any, the means that a tenth, a half and nine
 * tenths of them do not exceed, the highest, and of how many GPUs a mean is known.
 */
export type FleetPoint = [
  at: string,
  lowest: number,
  p10: number,
  p50: number,
  p90: number,
  highest: number,
  gpus: number,
];

/**
 * A configuration that no other beats in all objectives, by the means of its `runs`. `ties` are
 * those of the front that it cannot be distinguished from in any objective.
 */
export interface FrontMember {
  ordinal: number;
  runs: number;
  goals: GoalStanding[];
  ties: number[];
}

/**
 * A configuration that no other beats in all objectives of the task; `measures` by their names,
 * those left out that were not measured.
 */
export interface FrontPoint {
  ordinal: number;
  parameters: Record<string, unknown>;
  measures: Record<string, number>;
}

/** Which part of an engine over several nodes an executor starts; the coordinator is rank 0. */
export interface GangPlace {
  rank: number;
  size: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  coordinator_id: string;
}

/** Whether a node's GPUs can be read, and how. Answered by `AgentView`. */
export interface GetAgent {
  type: "telemetry.agent";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
}

/**
 * What is held on each device? Answered by `AllocationMap`. null: every node.
 *
 * As many nodes as fit into a message, in order of their ids, those after `after_node_id`.
 */
export interface GetAllocationMap {
  type: "scheduler.allocation_map";
  node_id?: string | null;
  after_node_id?: string | null;
}

/**
 * Could this request be granted now? Answered by `AvailabilityView`; reserves nothing.
 *
 * Reasons name no holders in other namespaces than `namespace` and `names_of`; either null: all.
 */
export interface GetAvailability {
  type: "scheduler.availability";
  names_of?: string[] | null;
  request?: GpuRequest;
  namespace?: string | null;
}

/** All nodes with GPUs, by name, after `after_name`. Answered by `ClusterView`. */
export interface GetCluster {
  type: "cluster.get_cluster";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  cluster_id: string;
  after_name?: string | null;
}

/**
 * Every GPU as node selection sees it. Answered by `ClusterStatus`.
 *
 * As many whole nodes as fit into a message, in order of their names, those after `after_node_id`.
 */
export interface GetClusterStatus {
  type: "scheduler.cluster_status";
  after_node_id?: string | null;
}

/** Asks for a part of an uploaded file, for an executor. Answered by `DatasetPiece`. */
export interface GetDatasetPiece {
  type: "gateway.get_dataset_piece";
  /** 64 hexadecimal digits, in small */
  sha256: string;
  number: number;
}

/**
 * History of an experiment's engine, in at most `points` buckets of each metric.
 *
 * Of its newest attempt, all of it unless times are given. Answered by `EngineSeriesView`.
 */
export interface GetEngineSeries {
  type: "results.engine_series";
  experiment_id: string;
  start_at?: string | null;
  end_at?: string | null;
  points?: number;
}

/** Answered by `Backlog`. */
export interface GetExecutorBacklog {
  type: "executor.get_backlog";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
}

/** Answered by `ExperimentView`. */
export interface GetExperiment {
  type: "orchestrator.get_experiment";
  experiment_id: string;
}

/** Why attempts and reservations ended otherwise than planned. Answered by `FailuresView`. */
export interface GetFailures {
  type: "results.failures";
  start_at: string;
  end_at: string;
  namespace?: string | null;
}

/** One GPU by its index in its node. Answered by `GpuDetail`; refused with not_found. */
export interface GetGpu {
  type: "telemetry.gpu_info";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  index: number;
  use_cache?: boolean;
}

/** Answered by `GpuPrices`. */
export interface GetGpuPrices {
  type: "results.get_gpu_prices";
}

/**
 * What would releasing idle reservations have freed? Answered by `IdleView`; changes nothing.
 *
 * Counted by minutes: idle are those in which all of a reservation's GPUs stayed below
 * `idle_percent`; an unknown one is not. Experiments are left out: what ran of them is not known
 * here.
 */
export interface GetIdle {
  type: "results.idle";
  start_at: string;
  end_at: string;
  namespace?: string | null;
  window_seconds?: number;
  grace_seconds?: number;
  idle_percent?: number;
}

/**
 * What the memory of an attempt's GPUs did before it failed for want of memory.
 *
 * Answered by `MemoryTrendView`, refused with `not_found` where it did not, or no sample is kept.
 */
export interface GetMemoryTrend {
  type: "results.get_memory_trend";
  attempt_id: string;
}

/** GPUs summed up by node. Answered by `NodeSummaries`. Thresholds are honoured strictly (<). */
export interface GetNodeSummaries {
  type: "scheduler.node_summaries";
  utilization_threshold?: number;
  memory_threshold?: number;
}

/** Answered by `Backlog`. */
export interface GetOrchestratorBacklog {
  type: "orchestrator.get_backlog";
}

/** Answered by `PresetView`. */
export interface GetPreset {
  type: "orchestrator.get_preset";
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  /** 1 to 128 letters, digits, _, . and -, the first and last a letter or digit */
  name: string;
}

/** How is this executor's part of the attempt? Answered by `RankView`; `not_found` without. */
export interface GetRank {
  type: "executor.get_rank";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  attempt_id: string;
}

/** Usage per namespace. Answered by `ReportView`. */
export interface GetReport {
  type: "results.report";
  start_at: string;
  end_at: string;
}

/**
 * The requests of an experiment's level, as its newest summary's benchmark counts them from 0.
 *
 * Answered by `RequestsView`, refused with `not_found` where none are stored.
 */
export interface GetRequests {
  type: "results.get_requests";
  experiment_id: string;
  level?: number;
}

/** Answered by `ReservationView`. */
export interface GetReservation {
  type: "scheduler.get_reservation";
  names_of?: string[] | null;
  reservation_id: string;
}

/** Answered by `Backlog`. */
export interface GetResultsBacklog {
  type: "results.get_backlog";
}

/** Answered by `Backlog`. */
export interface GetSchedulerBacklog {
  type: "scheduler.get_backlog";
}

/**
 * History of a metric in at most `points` buckets per device. Answered by `SeriesView`.
 *
 * `namespace` is one of ours: of the whole minutes in which its reservations, or pods of the
 * namespace of its name, had a device. `readable` null: of pods of all namespaces. By `pod` or
 * `pod_namespace`, of Kubernetes: of devices in the whole minutes in which containers of these pods
 * had them, known once a minute is over. `gpu_model` is a part of the name, in which case and
 * separators do not matter. `kind_of_gpu` null: of every kind.
 */
export interface GetSeries {
  type: "results.series";
  metric: SeriesMetric;
  start_at: string;
  end_at: string;
  node_id?: string | null;
  device_uuid?: string | null;
  experiment_id?: string | null;
  pod_namespace?: string | null;
  pod?: string | null;
  gpu_model?: string | null;
  kind_of_gpu?: GpuKind | null;
  points?: number;
  by?: SeriesBy;
  namespace?: string | null;
  readable?: string[] | null;
}

/**
 * Asks a node for a reading; answered by `GpuSampled`.
 *
 * `use_cache` accepts a reading up to 5 s old. `released_reservation_id`: the reading must not
 * include load of this reservation any more; a source that models load from grants drops it first,
 * a real source just reads.
 */
export interface GetSnapshot {
  type: "telemetry.snapshot";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  use_cache?: boolean;
  released_reservation_id?: string | null;
}

/**
 * An experiment's measurements.
 *
 * Answered by `SummaryView`, refused with `not_found` until there are some.
 */
export interface GetSummary {
  type: "results.get_summary";
  experiment_id: string;
}

/** Answered by `TaskView`, with its `spending` where that is asked for. */
export interface GetTask {
  type: "orchestrator.get_task";
  task_id: string;
  with_spending?: boolean;
}

/**
 * Who held GPUs, and what became of every GPU's time. Answered by `UsageView`; if `daily`, with its
 * `days`.
 */
export interface GetUsage {
  type: "results.usage";
  start_at: string;
  end_at: string;
  namespace?: string | null;
  by?: UsageBy;
  daily?: boolean;
}

/** How long requests waited for GPUs. Answered by `WaitsView`. */
export interface GetWaits {
  type: "results.waits";
  start_at: string;
  end_at: string;
  namespace?: string | null;
}

/** What was held and hardly used. Answered by `WasteView`. */
export interface GetWaste {
  type: "results.waste";
  start_at: string;
  end_at: string;
  namespace?: string | null;
}

/**
 * Where the time of a task's or an experiment's attempts went. Answered by `WaterfallView`, refused
 * with `not_found` until one has finished.
 */
export interface GetWaterfall {
  type: "results.waterfall";
  subject_id: string;
}

/**
 * A configuration by one of several objectives. `behind_percent` is of the front's best by it,
 * `is_within_noise` whether chance may part the two; null: none was measured twice.
 */
export interface GoalStanding {
  objective: string;
  mean: number;
  behind_percent: number;
  noise_floor_percent: number | null;
  is_within_noise: boolean | null;
}

/** A node's part of the allocation map, and the held share of each device, "0.00" to "1.00". */
export interface GpuAllocMap {
  type: "scheduler.allocation_map_view";
  nodes: NodeAllocation[];
  gpu_alloc_map: Record<string, string>;
}

/** How the GPUs of an attempt were chosen. */
export interface GpuAllocation {
  count: number;
  indices: number[];
  allocation_method: string;
  details: GpuInfoDetail[];
}

/**
 * The same GPU-microseconds as `GpuTime`, by who had them: reservations, with their pods; pods that
 * Kubernetes placed by itself; nobody.
 */
export interface GpuBooking {
  reservations_us: number;
  pods_us: number;
  nobody_us: number;
}

/** Facts and newest reading; `reading` null if the GPU does not answer. */
export interface GpuDetail {
  type: "telemetry.gpu_detail";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  observed_at: string;
  facts: DeviceFacts;
  reading: GpuReading | null;
}

/**
 * More of one GPU over a window than `GpuStats`. null is unknown.
 *
 * `throttled_seconds` leaves out reasons that say nothing of trouble, such as `gpu_idle`;
 * `throttle_reasons` has the seconds of each of the others. `ecc_*` count errors, `xids` are those
 * that the driver reported, in order.
 */
export interface GpuDetails {
  coverage_percent: number;
  longest_gap_seconds: number;
  utilization: Percentiles;
  memory_used_mb: Percentiles;
  temperature_c: Percentiles;
  power_draw_w: Percentiles;
  energy_wh: number | null;
  energy_source: EnergySource | null;
  throttled_seconds: number | null;
  throttle_reasons: Record<string, number>;
  ecc_corrected: number | null;
  ecc_uncorrected: number | null;
  xids: number[];
  co_tenants: CoTenant[];
}

/**
 * The GPUs of an experiment's last attempt.
 *
 * `world_size` is what its parameters say, `tp * pp * max(dp, dcp, cp)`. The allocation is
 * `gpu_info`, the name that dashboards know; `indices` and the two after it repeat it.
 */
export interface GpuInfo {
  type: "orchestrator.gpu_info";
  model: string;
  count: number;
  device_ids: string[];
  indices: number[];
  allocation_method: string;
  simulated: boolean;
  details: GpuInfoDetail[];
  world_size: number | null;
  gpu_info: GpuAllocation | null;
}

/** One granted device, with the readings and the score it was chosen by. */
export interface GpuInfoDetail {
  type: "orchestrator.gpu_info_detail";
  index: number;
  name: string;
  uuid: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  memory_total_mb: number | null;
  availability_score: number | null;
  memory_free_mb: number | null;
  utilization_percent: number | null;
}

/**
 * How a device, or a part of one, is handed out.
 *
 * As a filter of devices `shared` means those held in parts in any way, `pgpu` every one that is no
 * instance.
 */
export const GpuKind = ["pgpu", "mig", "shared", "vgpu", "mps", "time_slice"] as const;
export type GpuKind = (typeof GpuKind)[number];

/** The connection of two GPUs, reported once per pair. `nvlinks` counts direct NVLinks. */
export interface GpuLink {
  first_uuid: string;
  second_uuid: string;
  kind: LinkKind;
  nvlinks: number;
}

/** GPUs by node and index. */
export interface GpuList {
  type: "gateway.gpus";
  next_cursor: string | null;
  gpus: GpuView[];
}

/**
 * The memory of one GPU in the minute before its attempt failed, as far as it was sampled.
 *
 * `is_growing`: its peak is over its start by more than 2 % of the GPU's memory.
 */
export interface GpuMemoryTrend {
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  index: number;
  name: string;
  start_mb: number;
  peak_mb: number;
  last_mb: number;
  total_mb: number | null;
  is_growing: boolean;
  simulated: boolean;
}

/**
 * A node's reading, as `/ws/metrics` sends it: a slow client gets only the newest.
 *
 * `age_seconds` is how long it has been here, `skipped` how many of the node's readings came since
 * the last one that this client was sent.
 */
export interface GpuMetrics {
  type: "gateway.gpu_metrics";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  sequence: number;
  observed_at: string;
  simulated: boolean;
  gpus: GpuView[];
  age_seconds: number;
  skipped: number;
}

/** How a workload is given GPUs: whole, by GPU-Manager, by HAMi, or by NVIDIA's MPS. */
export const GpuMode = ["pgpu", "vgpu", "hami", "mps"] as const;
export type GpuMode = (typeof GpuMode)[number];

/** A model of GPU by its whole name; of memory of about that size, where it is said. */
export interface GpuModel {
  /** one line without control characters or marks of text direction */
  name: string;
  memory_total_mb?: number | null;
}

/**
 * An experiment's GPUs over its measured runs, or over all of it, as `phase` says.
 *
 * `sample_count` counts ticks; keys of `gpu_stats` and `gpu_details` are the device index,
 * `node/index` when several nodes took part. `coverage_percent` is how much of the window has
 * samples, `missing_ticks` how many their numbers say are missing; `energy_wh` null if no device
 * reported power. `tokens_per_joule` are output tokens, `cost_per_million_tokens` too, in the
 * currency of the prices; null: a GPU model without one. With too little coverage the numbers are
 * not `trusted`; null: a release that did not judge. `devices` are those that the pod of an
 * experiment in a cluster had, where its node's agent reported it.
 */
export interface GpuMonitoring {
  monitoring_duration_seconds: number;
  sample_count: number;
  gpu_stats: Record<string, GpuStats>;
  coverage_percent: number;
  energy_wh: number | null;
  phase: string;
  simulated: boolean;
  gpu_details: Record<string, GpuDetails>;
  energy_source: EnergySource | null;
  tokens_per_joule: number | null;
  cost_per_million_tokens: number | null;
  longest_gap_seconds: number;
  missing_ticks: number;
  trusted: boolean | null;
  untrusted_because: string;
  devices: DeviceGrant[];
}

/**
 * A container of a Kubernetes pod to which a GPU, or a share of it, was given.
 *
 * `kind` is a `GpuKind`, empty from an older agent; `percent` is how much of the device it was
 * given, and `memory_mb` the memory, null where nothing tells. `uid`, `reservation_id` and `owner`,
 * such as Deployment/llama, are the cluster's own word, empty where it was not asked.
 */
export type GpuPod = [
  namespace: string,
  pod: string,
  container: string,
  kind: string,
  percent: number | null,
  memory_mb: number | null,
  uid: string,
  reservation_id: string,
  owner: string,
];

/**
 * A container of a Kubernetes pod that was given the GPU, or a share of it.
 *
 * `kind`, `percent` and `owner` are as telemetry's `GpuPod` has them, `memory_given_mb` what of the
 * GPU's memory it was given; null: nothing tells. `memory_used_mb` and `utilization_percent` are
 * what its pod uses, by all of its containers: with `reading` `own` the pod has the device alone,
 * or its processes told; with `gpu` they are the whole GPU's, which others have as well. null: an
 * older gateway.
 */
export interface GpuPodView {
  namespace: string;
  pod: string;
  container: string;
  kind: string;
  percent: number | null;
  memory_given_mb: number | null;
  owner: string;
  reading: WhoseReading | null;
  memory_used_mb: number | null;
  utilization_percent: number | null;
}

/**
 * What the task file may say about its GPUs; what it does not say is estimated from model and
 * parameters.
 *
 * `count` is of all GPUs of an experiment, which `num_nodes` nodes share evenly; `nodes` are those
 * that may be taken, by name. Several GPUs have about the same free memory, unless
 * `balanced_memory` is false. `cpu_count` and `host_memory_mb` are the engine's bounds too.
 *
 * All experiments run on one model and memory size, the first that any of them is granted, of
 * `models` if there are any; not so with `mixed_models`. Those of a `preemptible` task are
 * interrupted for requests of higher priority, and repeated once GPUs are free again.
 *
 * `power_limit_w` is the limit of each GPU while an experiment runs, `sm_clock_mhz` the clock that
 * its multiprocessors are locked to: one value, or a list to search, such as for
 * `maximize_tokens_per_joule`. They are taken back afterwards.
 *
 * With `shares` each experiment has a part of a GPU instead: 0.25 is a quarter of one, and of its
 * memory. They are on one GPU if one has so much, unless `share_strategy` is `fill`; the rest as in
 * `GpuRequest`. With `mig_profile` it has one MIG instance.
 *
 * In a Kubernetes cluster `cluster` says which one, and `nodes` are its own. The node with the most
 * idle GPUs is taken, idle below both thresholds; with `select_node` false, and where no node has
 * enough, the cluster's scheduler chooses. With `node_ranking` `least_fragmenting` the one on which
 * the fewest GPUs are left over is taken instead. `resource` is an extended resource or a custom
 * device to take in place of NVIDIA's GPUs, and `resource_amounts` how many units of it, and of
 * what its group defines beside it; what is not said gets its definition's default value.
 *
 * A part of one of a cluster's GPUs instead: `vgpu_cores` of GPU-Manager, 100 of which are one,
 * with `vgpu_memory_mb`; `mps_cores` of the MPS plugin; `time_slices` of a GPU that NVIDIA's plugin
 * shares, as nvidia.com/gpu.shared or under the name that `resource` says; or `mig_profile`.
 * Elsewhere only vGPU cores and a `mig_profile` may be asked for.
 */
export interface GpuPreferences {
  min_memory_mb?: number | null;
  device_uuids?: string[];
  placement?: Placement;
  priority?: number;
  preemptible?: boolean;
  cpu_count?: number | null;
  host_memory_mb?: number | null;
  require?: Selector[];
  prefer?: Preference[];
  shares?: number | null;
  share_strategy?: ShareStrategy;
  min_free_shares?: number;
  enforced_shares?: boolean;
  mig_profile?: string | null;
  mixed_models?: boolean;
  count?: number | null;
  num_nodes?: number;
  models?: string[];
  nodes?: string[];
  balanced_memory?: boolean;
  cluster?: string | null;
  select_node?: boolean;
  node_ranking?: NodeRanking;
  utilization_threshold_percent?: number;
  memory_threshold_percent?: number;
  vgpu_cores?: number | null;
  vgpu_memory_mb?: number | null;
  mps_cores?: number | null;
  time_slices?: number | null;
  resource?: string | null;
  resource_amounts?: Record<string, number>;
  power_limit_w?: number | number[] | null;
  sm_clock_mhz?: number | number[] | null;
}

/** `hourly` by parts of models' names in lower case, of which the longest counts. */
export interface GpuPrices {
  type: "results.gpu_prices";
  hourly: Record<string, number>;
  currency: string;
}

/**
 * A process with memory on a GPU.
 *
 * `reservation_id` comes from `GPUSTEWARD_RESERVATION` in its environment, else from its
 * container's label. `pod_uid` is Kubernetes' own id of the pod it runs in. `utilization_percent`
 * is read only where processes of several pods are on one GPU.
 */
export type GpuProcess = [
  pid: number,
  name: string | null,
  memory_used_mb: number | null,
  container_id: string | null,
  reservation_id: string | null,
  pod_uid: string | null,
  utilization_percent: number | null,
];

/** A process with memory on a GPU. */
export interface GpuProcessView {
  pid: number;
  name: string | null;
  memory_used_mb: number | null;
  container_id: string | null;
  reservation_id: string | null;
  pod_uid: string | null;
}

/**
 * One GPU at one tick. Fields are only ever appended: the wire form is positional.
 *
 * `ecc_*` count since the driver was loaded. `nvlinks_up` has the state of each link, by the link's
 * number. `performance_state` 0 is the fastest (P0). `memory_utilization_percent` is the share of
 * time in which memory was read or written, `buffered` what the driver saw between ticks. `pods`
 * are the containers that kubelet gave it to; null where no kubelet was asked. `pod_uses` is what
 * each of several pods uses, as far as their processes tell; one alone uses what is read.
 */
export type GpuReading = [
  uuid: string,
  index: number,
  utilization_percent: number | null,
  memory_total_mb: number | null,
  memory_used_mb: number | null,
  memory_free_mb: number | null,
  temperature_c: number | null,
  power_draw_w: number | null,
  power_limit_w: number | null,
  energy_mj: number | null,
  sm_clock_mhz: number | null,
  memory_clock_mhz: number | null,
  throttle_reasons: string[] | null,
  ecc_corrected: number | null,
  ecc_uncorrected: number | null,
  processes: GpuProcess[] | null,
  name: string | null,
  performance_state: number | null,
  fan_percent: number | null,
  memory_utilization_percent: number | null,
  encoder_percent: number | null,
  decoder_percent: number | null,
  pcie_generation: number | null,
  pcie_width: number | null,
  retired_pages: number | null,
  retired_pages_pending: boolean | null,
  remapped_rows_corrected: number | null,
  remapped_rows_uncorrected: number | null,
  remap_pending: boolean | null,
  remap_failed: boolean | null,
  nvlinks_up: boolean[] | null,
  buffered: Buffered[] | null,
  pods: GpuPod[] | null,
  pod_uses: PodUse[] | null,
];

/**
 * Whole GPUs, exclusively: `gpus` on each of `nodes` nodes, all of them or none. Or `shares` of the
 * GPUs of one node: 0.25 is a quarter of one, 1.2 more than one; exactly as asked. Or, with
 * `mig_profile` ("1g.10gb"), one MIG instance of those that there are.
 *
 * Empty selectors match everything. `min_memory_mb` null asks for at least half of the device's
 * memory to be free. `min_compute_capability` is asked of NVIDIA's GPUs, known by their name where
 * they do not report it; other makers' have none and are not refused for it. `same_model` is that
 * of GPUs with which these are compared. `lease_ttl_seconds` is how long a grant lives without
 * renewal; `wait_timeout_seconds` how long the request may queue. With `expected_duration_seconds`
 * it may start early in a gap that it will have left in time. With `cluster` the GPUs are a
 * Kubernetes cluster's.
 *
 * Shares are multiples of the scheduler's quantum, and have as large a part of the memory. GPUs
 * with less than `min_free_shares` free are left out. `unfragmented`: what fits on one GPU is not
 * spread over several, and parts of several are nearly equal. `enforced_shares`: only where
 * something keeps holders to their shares. `min_memory_mb` beside shares is of each whole GPU.
 *
 * `share_units` are shares that are counted: 7 with `units_per_gpu` 10 are 0.7, each unit of one
 * GPU. `evenly` takes them one by one of as many GPUs as have room (7 of three are 3, 2 and 2),
 * `fill` all that the emptiest has, then of the next.
 *
 * `vgpu_cores` and `vgpu_memory_mb` are read as what they mean, and never seen: 1 to 99 cores are
 * hundredths of one GPU that have at least this memory, multiples of 100 are whole GPUs.
 */
export interface GpuRequest {
  min_memory_mb?: number | null;
  device_uuids?: string[];
  placement?: Placement;
  priority?: number;
  preemptible?: boolean;
  cpu_count?: number | null;
  host_memory_mb?: number | null;
  require?: Selector[];
  prefer?: Preference[];
  shares?: number | null;
  share_strategy?: ShareStrategy;
  min_free_shares?: number;
  enforced_shares?: boolean;
  mig_profile?: string | null;
  mixed_models?: boolean;
  gpus?: number;
  max_utilization_percent?: number;
  node_ids?: string[];
  gpu_models?: string[];
  balanced_memory?: boolean;
  wait_timeout_seconds?: number;
  lease_ttl_seconds?: number;
  expected_duration_seconds?: number | null;
  nodes?: number;
  min_compute_capability?: string | null;
  cluster?: ClusterRequest | null;
  unfragmented?: boolean;
  same_model?: GpuModel | null;
  vgpu_cores?: number | null;
  vgpu_memory_mb?: number | null;
  share_units?: number | null;
  units_per_gpu?: number;
}

/**
 * All GPUs of a node at one tick, ordered by index. Identity: node, boot id, sequence.
 *
 * `sequence` grows by one per tick within a boot of the agent, so a gap is countable. `observed_at`
 * is the node's clock.
 */
export type GpuSampled = [
  tag: "telemetry.gpu_sampled",
  node_id: string,
  boot_id: string,
  sequence: number,
  observed_at: string,
  interval_seconds: number,
  source: Source,
  gpus: GpuReading[],
];

/** How a device plugin gives one GPU to several pods, each of which asks for slices of it. */
export const GpuSharing = ["time-slicing", "mps"] as const;
export type GpuSharing = (typeof GpuSharing)[number];

/** One GPU over a window. `power_limit_w` shows whether its power was capped meanwhile. */
export interface GpuStats {
  name: string;
  uuid: string;
  utilization: SampledSpread;
  memory_used_mb: Spread;
  memory_usage_percent: Spread;
  temperature_c: Spread;
  power_draw_w: Spread;
  power_limit_w: Spread;
}

/** How a cluster hands out GPUs: counted, or as devices of ResourceSlices that claims name. */
export const GpuSupply = ["device_plugin", "dra"] as const;
export type GpuSupply = (typeof GpuSupply)[number];

/**
 * GPU-microseconds, which add up to the hours asked for times the GPUs, exactly.
 *
 * Used and idle are held; unknown is what no sample covers, held or not. Of a shared GPU each part
 * counts for itself. A pod is idle while its own processes are, where it is known of them; else all
 * parts are used while the GPU is busy.
 */
export interface GpuTime {
  used_us: number;
  idle_us: number;
  free_us: number;
  cordoned_us: number;
  unknown_us: number;
}

/**
 * A GPU: its last reading joined to the scheduler's ledger. null is unknown, never 0.
 *
 * Without `fresh` later readings should have come. `availability_score` is 0.6 x free memory share
 * + 0.4 x idle share, null if one of them is unknown. `state`, `reservation_id`, `namespace` and
 * `holder` are null while the scheduler does not know the device. `holders` are all that hold it,
 * with their shares; the first is `holder`. `reasons` say why it would not be granted now, as
 * `DeviceAllocation` has them.
 */
export interface GpuView {
  type: "gateway.gpu";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  uuid: string;
  index: number;
  name: string;
  source: Source;
  simulated: boolean;
  observed_at: string | null;
  age_seconds: number | null;
  fresh: boolean;
  stale: boolean;
  availability_score: number | null;
  processes: GpuProcessView[] | null;
  pods: GpuPodView[] | null;
  utilization_percent: number | null;
  memory_total_mb: number | null;
  memory_used_mb: number | null;
  memory_free_mb: number | null;
  temperature_c: number | null;
  power_draw_w: number | null;
  power_limit_w: number | null;
  energy_mj: number | null;
  sm_clock_mhz: number | null;
  memory_clock_mhz: number | null;
  throttle_reasons: string[] | null;
  performance_state: number | null;
  fan_percent: number | null;
  memory_utilization_percent: number | null;
  encoder_percent: number | null;
  decoder_percent: number | null;
  pcie_generation: number | null;
  pcie_width: number | null;
  ecc_corrected: number | null;
  ecc_uncorrected: number | null;
  remap_pending: boolean | null;
  remap_failed: boolean | null;
  health: HealthState;
  health_detail: string | null;
  pci_bus_id: string | null;
  numa_node: number | null;
  mig_enabled: boolean | null;
  mig_profile: string | null;
  parent_uuid: string | null;
  power_limit_min_w: number | null;
  power_limit_max_w: number | null;
  recent_faults: FaultSeen[];
  state: DeviceState | null;
  reservation_id: string | null;
  namespace: string | null;
  holder: string | null;
  holders: DeviceHolder[];
  reasons: Reason[];
  cordon: CordonState | null;
}

/**
 * What answers. `missing` names what does not, `warnings` what answers and should be looked at.
 */
export interface Health {
  type: "gateway.health";
  ready: boolean;
  missing: string[];
  warnings: HealthWarning[];
}

/** What an operator does about a fault; `drain` and `reset` take the device out of service. */
export const HealthAction = ["ignore", "restart_application", "drain", "reset"] as const;
export type HealthAction = (typeof HealthAction)[number];

/**
 * A change of health. `device_uuid` null means the whole agent.
 *
 * `action` is what to do about it and `action_source` where that advice comes from. The changes of
 * power limit and locked clock carry the new one and the reservation it was asked for.
 */
export interface HealthChanged {
  type: "telemetry.health_changed";
  message_id: string;
  occurred_at: string;
  revision: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  boot_id: string;
  change: HealthKind;
  device_uuid: string | null;
  detail: string;
  xid: number | null;
  action: HealthAction | null;
  action_source: string | null;
  reservation_id: string | null;
  power_limit_w: number | null;
  sm_clock_mhz: number | null;
}

/** What happened to a device or to the agent. */
export const HealthKind = [
  "agent_started",
  "agent_stopped",
  "probe_hung",
  "probe_recovered",
  "gpu_lost",
  "gpu_recovered",
  "source_failed",
  "source_recovered",
  "xid",
  "sxid",
  "ecc_uncorrected",
  "ecc_storm",
  "row_remap_pending",
  "row_remap_failed",
  "mig_changed",
  "power_limit_changed",
  "power_limit_restored",
  "sm_clock_locked",
  "sm_clock_restored",
  "disk_full",
  "disk_has_room",
] as const;
export type HealthKind = (typeof HealthKind)[number];

/** A device's health as its agent sees it; only `ok` devices are granted. */
export const HealthState = ["ok", "lost", "hung", "failing"] as const;
export type HealthState = (typeof HealthState)[number];

/** One of `WarningCode`, and the sentence for a person. */
export interface HealthWarning {
  code: WarningCode;
  message: string;
}

/** What a node has beside its GPUs, or pods ask of it; a pod counts as one of `pods`. */
export interface HostAmounts {
  cpu_milli: number;
  memory_mb: number;
  ephemeral_storage_mb: number;
  pods: number;
}

/** The node around the GPUs. `release` is the agent's, of GPU Steward. */
export interface HostFacts {
  hostname: string;
  cpu_count: number | null;
  memory_total_mb: number | null;
  driver_version: string | null;
  cuda_driver_version: string | null;
  operating_system: string | null;
  release: string | null;
}

/** What becomes of a reservation that stays idle after its warning. */
export const IdleAction = ["warn", "preemptible", "release"] as const;
export type IdleAction = (typeof IdleAction)[number];

/** Until when a reservation is never idle, and why. */
export interface IdleExemption {
  until_at: string;
  /** one line without control characters or marks of text direction */
  reason: string;
}

/**
 * What one holder's reservations would have freed: their idle time beyond window and grace.
 *
 * `used_again`: how many of these reservations were used afterwards, and would have been missed.
 */
export interface IdleLine {
  namespace: string;
  holder: string;
  reservations: number;
  freed_gpu_hours: number;
  held_gpu_hours: number;
  used_again: number;
}

/** Most freed GPU hours first. */
export interface IdleView {
  type: "results.idle_view";
  start_at: string;
  end_at: string;
  lines: IdleLine[];
}

/**
 * That nothing has used a reservation since `since_at`. `action` follows at `acts_at` unless
 * something does; null: nothing follows, or it has: `preemptible`.
 */
export interface Idleness {
  since_at: string;
  action: IdleAction;
  acts_at: string | null;
  preemptible: boolean;
}

/** Newest first. */
export interface ImportedList {
  type: "gateway.imported_list";
  next_cursor: string | null;
  imported: ImportedView[];
}

/** A task or an experiment that another installation measured. No report counts it. */
export interface ImportedView {
  type: "gateway.imported";
  subject_id: string;
  kind: ArchiveKind;
  task_id: string;
  task_name: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  experiments: number;
  exported_at: string;
  exported_by: string;
  imported_at: string;
}

/** Whole numbers from `low` to `high`, both included; a grid takes every `step`-th. */
export interface IntegerRange {
  type: "integer";
  low: number;
  high: number;
  step?: number | null;
}

/**
 * The full inventory and health of a node: at the agent's start, at every change, and every 30 s.
 *
 * `revision` grows within one boot id; another boot id replaces what came before.
 */
export interface InventoryReported {
  type: "telemetry.inventory_reported";
  message_id: string;
  occurred_at: string;
  revision: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  boot_id: string;
  source: Source;
  interval_seconds: number;
  host: HostFacts;
  devices: DeviceFacts[];
  labels: Record<string, string>;
  links: GpuLink[];
}

/** At which address who invites has reached the platform: the new server asks there too. */
export interface InvitationRequest {
  api_url: string;
}

/** What a new server shows. A code counts for the node that it was made for alone. */
export interface JoinRequest {
  node_id: string;
  code: string;
}

/**
 * What a task names in a cluster, all of it in `namespace`, or in the cluster as a whole.
 *
 * `namespace` null is the executor's own choice. `base_model` is a BaseModel or ClusterBaseModel of
 * OME; `claim` holds the model instead. The engine's image is that of the ClusterServingRuntime
 * `serving_runtime`, if one is named. `devices` without a limit: the grant's GPUs, and nothing
 * beside them.
 */
export interface KubernetesSpec {
  namespace?: string | null;
  base_model?: string | null;
  claim?: VolumeClaim | null;
  serving_runtime?: string | null;
  container?: ContainerOverrides;
  devices?: ContainerDevices;
}

/**
 * Set labels of a node; null takes one away.
 *
 * These win over what the node's agent reports, a label that was taken away too.
 */
export interface LabelNode {
  type: "scheduler.label_node";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  labels: Record<string, string | null>;
}

/** Bounds on end-to-end latency. */
export interface LatencySlo {
  p50?: SloBound | null;
  p90?: SloBound | null;
  p95?: SloBound | null;
  p99?: SloBound | null;
}

/**
 * The best of `experiments` that differ in their parameters alone.
 *
 * `version` is the tag of the engine's image, `image_digest` that of the image that ran; empty: not
 * known. `misses` are constraints that it does not meet. `doubts` say why its score may be off.
 * `runs` count how often its configuration was measured; with `is_confirmed` its task repeated the
 * best ones and chose it, and `spread_percent` is the deviation of its runs.
 */
export interface Leader {
  experiment_id: string;
  task_id: string;
  task_name: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  ordinal: number;
  engine: string;
  version: string;
  image_digest: string;
  gpu_models: string[];
  driver_versions: string[];
  gpus: number;
  load: string;
  parameters: Record<string, unknown>;
  score: number;
  measured_at: string | null;
  experiments: number;
  misses: string[];
  doubts: string[];
  runs: number;
  is_confirmed: boolean;
  spread_percent: number | null;
}

/** The best first; those that miss constraints last. Scores of one `load` alone compare. */
export interface LeaderList {
  type: "orchestrator.leaders";
  models: MeasuredModel[];
  leaders: Leader[];
  objective: Objective;
}

/** Keeps a lease; `activate` before anything starts on the devices. */
export interface LeaseRenewal {
  epoch: number;
  activate?: boolean;
}

/** What lengths of prompts were counted in: tokens by the engine that was measured, or words. */
export const LengthUnit = ["engine_tokens", "words"] as const;
export type LengthUnit = (typeof LengthUnit)[number];

/** A level's bound, with what shows it, for people. */
export interface LevelBound {
  bound: Bound;
  evidence: string;
}

/** A level, as results name it, with each tool's command for its load. */
export interface LevelCommands {
  scenario: string;
  num_concurrency: number;
  arrivals: string | null;
  commands: LoadCommand[];
}

/** Why a level's figures may mislead. The level still counts, unless it is set aside. */
export const LevelMark = [
  "not_steady",
  "littles_law",
  "cache_not_reset",
  "cache_hits",
  "client_limited",
  "sent_late",
  "prefix_share",
  "answer_pieces",
] as const;
export type LevelMark = (typeof LevelMark)[number];

/**
 * One scenario at one concurrency. `error_rate` is errors over all requests, 0 to 1.
 *
 * With `arrivals` requests were sent at times of their own, and `num_concurrency` is the most that
 * could be in flight. A level that is `set_aside`, for the reason that it says, counts as failed.
 * `client_lag_p99_seconds` is how late the load generator itself looked at what had arrived, and
 * `client_lag_mean_seconds` its mean; `lateness_p99_seconds` is how late it sent. Levels of equal
 * `seed` had the same requests.
 *
 * A level without a completed request is kept, with empty stats. The window is the measured run,
 * warm-up excluded. `requests` are those that ended in it; null: unknown, or left out here. `bound`
 * is there where the engine's own metrics are known. `client_processes` made the load.
 *
 * `items_per_second` are inputs (E) or documents (R), of which each request had `batch_size`; null
 * where answers are of tokens, whose rate is null in turn where they are not.
 */
export interface LevelResult {
  scenario: string;
  num_concurrency: number;
  started_at: string;
  finished_at: string;
  run_duration: number;
  num_requests: number;
  num_completed_requests: number;
  num_error_requests: number;
  error_rate: number;
  error_codes_frequency: Record<string, number>;
  requests_per_second: number;
  mean_output_throughput_tokens_per_s: number | null;
  mean_input_throughput_tokens_per_s: number;
  mean_total_tokens_throughput_tokens_per_s: number;
  tokens_estimated: boolean;
  stats: LevelStats;
  requests: RequestColumns | null;
  arrivals: string | null;
  seed: number | null;
  marks: LevelMark[];
  set_aside: string | null;
  steadiness: Steadiness | null;
  prefix_cache: PrefixCacheUse | null;
  client_lag_p99_seconds: number | null;
  lateness_p99_seconds: number | null;
  bound: LevelBound | null;
  client_processes: number;
  turns: TurnResult[];
  client_lag_mean_seconds: number | null;
  batch_size: number;
  items_per_second: number | null;
}

/**
 * Distributions of a level.
 *
 * null where no request gave the measure (tpot needs two output tokens, ttft an answer of tokens).
 */
export interface LevelStats {
  ttft: Distribution | null;
  tpot: Distribution | null;
  e2e_latency: Distribution | null;
  output_latency: Distribution | null;
  output_inference_speed: Distribution | null;
  num_input_tokens: Distribution | null;
  num_output_tokens: Distribution | null;
  total_tokens: Distribution | null;
  input_throughput: Distribution | null;
  output_throughput: Distribution | null;
}

/** What people may say of a resource's limit. */
export const LimitsPolicy = ["disabled", "required", "optional"] as const;
export type LimitsPolicy = (typeof LimitsPolicy)[number];

/** How two GPUs are connected, nearest first; the words of `nvidia-smi topo -m`. */
export const LinkKind = ["nvlink", "internal", "pix", "pxb", "phb", "node", "sys"] as const;
export type LinkKind = (typeof LinkKind)[number];

/**
 * Of which of a node's GPUs would a request be granted any one now? Answered by `AvailableGpus`;
 * reserves nothing.
 *
 * `min_memory_mb` null asks for no particular amount.
 */
export interface ListAvailableGpus {
  type: "scheduler.available_gpus";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  min_memory_mb?: number | null;
  max_utilization_percent?: number;
}

/**
 * Recorded decisions after `after_id`, oldest first; with `before_id` the newest before it, newest
 * first. Answered by `DecisionList`.
 *
 * With a `reservation_id` only those that put in or bring out something of it.
 */
export interface ListDecisions {
  type: "scheduler.decisions";
  after_id?: number;
  reservation_id?: string | null;
  limit?: number;
  before_id?: number | null;
}

/**
 * Where reserved, running and physically used disagree. Answered by `DriftList`.
 *
 * null: every node. Ended ones are listed for a day with `ended`.
 */
export interface ListDrifts {
  type: "scheduler.drifts";
  limit?: number;
  cursor?: string | null;
  node_id?: string | null;
  ended?: boolean;
}

/** What the newest attempt's engine reported. Answered by `EngineSampleList`. */
export interface ListEngineSamples {
  type: "results.list_engine_samples";
  limit?: number;
  cursor?: string | null;
  experiment_id: string;
}

/**
 * Experiments, newest task first, then by ordinal. Answered by `ExperimentList`.
 *
 * With a `node_id` only those with an attempt on it; those of archived tasks only with `archived`
 * or their `task_id`.
 */
export interface ListExperiments {
  type: "orchestrator.list_experiments";
  limit?: number;
  cursor?: string | null;
  task_id?: string | null;
  states?: ExperimentState[];
  archived?: boolean;
  namespace?: string | null;
  node_id?: string | null;
}

/**
 * The best experiment of a model for each engine, its version, GPUs and load. Answered by
 * `LeaderList`. Without a `model` the answer has the measured models alone.
 */
export interface ListLeaders {
  type: "orchestrator.list_leaders";
  model?: string | null;
  objective?: Objective;
  namespace?: string | null;
  limit?: number;
}

/** What do namespaces hold, and what may they? Answered by `NamespaceList`. */
export interface ListNamespaces {
  type: "scheduler.list_namespaces";
}

/**
 * Which pods of Kubernetes had GPUs in a time? Answered by `PodList`.
 *
 * Filters are as in `GetSeries`.
 */
export interface ListPods {
  type: "results.list_pods";
  start_at: string;
  end_at: string;
  node_id?: string | null;
  kind_of_gpu?: GpuKind | null;
  namespace?: string | null;
  readable?: string[] | null;
}

/**
 * A namespace's own presets by name, after them those of this release; null: of all namespaces.
 * Answered by `PresetList`.
 */
export interface ListPresets {
  type: "orchestrator.list_presets";
  limit?: number;
  cursor?: string | null;
  namespace?: string | null;
}

/**
 * Answered by `ReservationList`, newest first. Empty `states` means all; `names_of` as in
 * `NamesHolders`.
 */
export interface ListReservations {
  type: "scheduler.list_reservations";
  limit?: number;
  cursor?: string | null;
  states?: ReservationState[];
  namespace?: string | null;
  node_id?: string | null;
  names_of?: string[] | null;
}

/** What runs on this executor? Answered by `RunningAttempts`. */
export interface ListRunning {
  type: "executor.list_running";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
}

/**
 * The samples of an experiment's newest summary, some of them outside of its windows.
 *
 * Answered by `SampleList`, refused with `not_found` where there is no summary.
 */
export interface ListSamples {
  type: "results.list_samples";
  limit?: number;
  cursor?: string | null;
  experiment_id: string;
}

/** Answered by `SecretList`: what a namespace has, by name; null: of every namespace. */
export interface ListSecrets {
  type: "orchestrator.list_secrets";
  limit?: number;
  cursor?: string | null;
  namespace?: string | null;
}

/**
 * Asks an executor which models a server lists; answered by `ServedModels`.
 *
 * The key is shown to the server alone.
 */
export interface ListServedModels {
  type: "executor.list_served_models";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  /** http:// or https://, a host, and what stands before /v1, if anything */
  url: string;
  api_key?: string | null;
}

/**
 * The measurements of a task's experiments, or only of those after `after_experiment_id`.
 *
 * Answered by `SummaryList`.
 */
export interface ListSummaries {
  type: "results.list_summaries";
  task_id: string;
  after_experiment_id?: string | null;
}

/** Answered by `TaskList`, newest first; with `archived` also those that are. */
export interface ListTasks {
  type: "orchestrator.list_tasks";
  limit?: number;
  cursor?: string | null;
  namespace?: string | null;
  states?: TaskState[];
  archived?: boolean;
}

/** Answered by `UploadUses`. */
export interface ListUploadUses {
  type: "orchestrator.list_upload_uses";
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
}

/**
 * Where a load search found the greatest load that meets the constraints: at least `low`, less than
 * `high`, about `estimate`.
 *
 * `low` null: no load met them beyond doubt; `estimate` null: none did; `high` null: none missed
 * them beyond doubt. `measured` is the load that the experiment's figures are of. `cliff`: just
 * above it they are missed by far. `non_monotone`: a load above a missed one met them.
 */
export interface LoadBoundary {
  load: LoadKind;
  low: number | null;
  high: number | null;
  estimate: number | null;
  measured: number | null;
  cliff: boolean;
  non_monotone: boolean;
  levels: number;
}

/** A tool's command for one level's load. null: the tool cannot send it, for `reason`. */
export interface LoadCommand {
  tool: string;
  command: string | null;
  reason: string;
}

/**
 * The host that sent the load; of an engine in a process or a container the engine's too.
 *
 * `cpu_governor` is of its processors, several with commas between them; `numa_nodes` as in 0-1.
 * Empty, and null: the kernel does not say.
 */
export interface LoadHost {
  cpu_model: string;
  cpu_governor: string;
  cpu_count: number | null;
  numa_nodes: string;
}

/**
 * What a load search raises: requests at once, or requests per second that are sent at times no
 * answer moves.
 */
export const LoadKind = ["concurrency", "poisson", "constant"] as const;
export type LoadKind = (typeof LoadKind)[number];

/**
 * Look for the greatest load from `min` to `max` that meets the constraints, until it is known to
 * `tolerance`, a share of it, or `max_levels` are measured.
 */
export interface LoadSearch {
  load?: LoadKind;
  min?: number;
  max?: number;
  tolerance?: number;
  max_levels?: number;
}

/**
 * Lines of a log. `offset` is of the first, `next_offset` where to read on.
 *
 * `skipped_bytes` were no longer kept, or could not be written, before `offset`. `is_complete`: the
 * attempt has ended and nothing follows.
 */
export interface LogChunk {
  type: "executor.log_chunk";
  attempt_id: string;
  offset: number;
  next_offset: number;
  lines: string[];
  skipped_bytes: number;
  is_complete: boolean;
}

/** A browser's login: with a token, or with the code of a link. */
export interface Login {
  token?: string | null;
  code?: string | null;
}

/**
 * What logs a browser in once, until `ends_at`: the page does at its address with `#login=` and the
 * code behind it.
 */
export interface LoginLink {
  type: "gateway.login_link";
  code: string;
  ends_at: string;
}

/** A new token with its secret, which is shown this once. */
export interface MadeToken {
  secret: string;
  token: TokenView;
}

/**
 * Who is asking. `namespaces` are those of its token; an admin's reach is every one.
 *
 * `csrf_token`, of a login's cookie only, belongs into the header X-CSRF-Token of every request
 * that changes something. `person` is recorded as the requester of what this caller asks for: the
 * token's name, or what an admin's client says of the account that runs it, which nothing proves.
 *
 * `role` is the highest; `roles` has those of namespaces in which it is another. `provider` is who
 * was signed in at, null with a token of this platform. `ends_at`: null is without end.
 */
export interface Me {
  type: "gateway.me";
  role: Role;
  namespaces: string[];
  name: string;
  token_id: string | null;
  asks_for_tokens: boolean;
  csrf_token: string | null;
  person: string;
  roles: Record<string, Role>;
  provider: string | null;
  ends_at: string | null;
}

/** An experiment's aggregate with what its GPUs did meanwhile. */
export interface MeasuredMetrics {
  mean_e2e_latency: number | null;
  min_e2e_latency: number | null;
  max_e2e_latency: number | null;
  p50_e2e_latency: number | null;
  p90_e2e_latency: number | null;
  p99_e2e_latency: number | null;
  mean_ttft: number | null;
  mean_tpot: number | null;
  mean_output_throughput: number | null;
  max_output_throughput: number | null;
  mean_total_throughput: number | null;
  max_total_throughput: number | null;
  total_requests: number;
  total_completed_requests: number;
  total_error_requests: number;
  success_rate: number;
  total_levels: number;
  failed_levels: FailedLevel[];
  max_error_rate: number | null;
  mean_output_throughput_per_gpu: number | null;
  max_total_throughput_per_gpu: number | null;
  max_goodput_per_gpu: number | null;
  tokens_per_joule: number | null;
  cost_per_million_tokens: number | null;
  boundary: LoadBoundary | null;
  mean_items_per_second: number | null;
  max_items_per_second: number | null;
  max_items_per_second_per_gpu: number | null;
  gpu_monitoring: GpuMonitoring | null;
}

/** A model that has measured experiments, and the objectives of their tasks. */
export interface MeasuredModel {
  model: string;
  experiments: number;
  objectives: Objective[];
  measured_at: string;
}

/** A person by the name, or a group by the name, that the provider says. */
export const MemberKind = ["person", "group"] as const;
export type MemberKind = (typeof MemberKind)[number];

/** Members of a namespace, by kind and name. */
export interface MemberList {
  type: "gateway.members";
  next_cursor: string | null;
  members: MemberView[];
}

/** A person or group with a role in a namespace, beside what their groups give everywhere. */
export interface MemberRequest {
  kind?: MemberKind;
  /** one line without control characters or marks of text direction */
  name: string;
  role?: Role;
}

/** A member of a namespace. */
export interface MemberView {
  member_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  kind: MemberKind;
  name: string;
  role: Role;
  set_by: string;
  set_at: string;
}

/**
 * Memory that an experiment needs of each GPU by a rule of thumb, whose `terms` are in words.
 *
 * It is not what is asked for where the largest GPU that there is has less.
 */
export interface MemoryEstimate {
  memory_mb: number;
  source: MemorySource;
  terms?: string;
}

/** Where the memory that an experiment asks for comes from. */
export const MemorySource = ["task", "model_name", "history", "model_config", "default"] as const;
export type MemorySource = (typeof MemorySource)[number];

/** Of the minute up to `until_at`, when the attempt began to be taken down. */
export interface MemoryTrendView {
  type: "results.memory_trend";
  attempt_id: string;
  until_at: string;
  gpus: GpuMemoryTrend[];
}

/** What would these presets be together? Answered by `MergedPresets`; stores nothing. */
export interface MergePresets {
  type: "orchestrator.merge_presets";
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  presets: string[];
  how?: PresetMerge;
}

/** Presets to merge in this order. */
export interface MergeRequest {
  presets: string[];
  how?: PresetMerge;
}

/** `revisions` are those of the presets that were merged, in their order; 0: of this release. */
export interface MergedPresets {
  type: "orchestrator.merged_presets";
  parameters: Record<string, (string | number | boolean | null)[] | Choice | Categorical | IntegerRange | ContinuousRange>;
  engine: string | null;
  conflicts: PresetConflict[];
  revisions: number[];
  how: PresetMerge;
  presets: string[];
}

/**
 * A GPU instance. `device_uuids` are its devices: none if it is half made, several if another tool
 * divided it further. Only what is `made_by_agent` is ever removed by it.
 */
export interface MigInstance {
  /** such as 1g.10gb */
  profile: string;
  start: number;
  size: number;
  device_uuids: string[];
  made_by_agent: boolean;
}

/**
 * What a GPU in MIG mode is divided into, and may be: without `options` its agent makes none.
 *
 * `change` is the number of the last `ChangeMig` that is over, with `refusal` not as asked.
 */
export interface MigLayout {
  options: MigOption[];
  instances: MigInstance[];
  change: number;
  refusal: string;
}

/**
 * A kind of instance that the driver can make: `size` memory slices, from one of `starts` on.
 *
 * There are never more than `limit` of a profile at once.
 */
export interface MigOption {
  /** such as 1g.10gb */
  profile: string;
  size: number;
  starts: number[];
  limit: number;
  memory_mb: number | null;
}

/**
 * Whether a container's limits ask for GPUs in a form that there is, where it is to run.
 *
 * `resources` are counts by name, as `tencent.com/vcuda-core`. What is not said of the GPU, its
 * driver's version and Kubernetes is not judged. `mps_on_mig`: the operator has started an MPS
 * daemon for the instance, which the guide's plugin does not do.
 */
export interface ModeCheck {
  type: "mode";
  resources: Record<string, number>;
  gpu?: string | null;
  capability?: string | null;
  driver?: string | null;
  kubernetes_version?: string | null;
  mig?: boolean;
  rules?: PrecisionRules;
  mps_on_mig?: boolean;
}

/**
 * `weights` are all of it, `active_weights` those that a token passes through: fewer with experts.
 * `cached_values` are the keys and values of a token in all layers.
 */
export interface ModelShape {
  weights: number;
  active_weights: number;
  cached_values: number;
  layers: number;
}

/** The model to serve: a hub id, a name below the executor's model roots, or a path. */
export interface ModelSpec {
  /** one line without control characters or marks of text direction */
  id_or_path: string;
  namespace?: string | null;
}

/** Starts watching a node, until it is stopped or `max_seconds` are over. */
export interface MonitoringRequest {
  monitoring_id?: string | null;
  interval_seconds?: number;
  max_seconds?: number;
}

/**
 * A monitoring, running or ended. `sample_count` counts ticks, `missed_count` those that failed or
 * came too late.
 */
export interface MonitoringView {
  type: "telemetry.monitoring";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  monitoring_id: string;
  running: boolean;
  started_at: string;
  monitoring_duration_seconds: number;
  sample_count: number;
  missed_count: number;
  gpu_stats: Record<string, GpuStats>;
}

/** By name. */
export interface NamespaceList {
  type: "scheduler.namespaces";
  namespaces: NamespaceUse[];
}

/** What one namespace got. Waits are of its granted requests. */
export interface NamespaceOutcome {
  namespace: string | null;
  requests: number;
  granted: number;
  gpu_hours: number;
  p50_seconds: number | null;
  p95_seconds: number | null;
}

/** What a namespace may hold at once, in GPUs, and what it is due; null is no limit. */
export interface NamespaceRules {
  gpu_limit?: number | null;
  guaranteed_gpus?: number;
  weight?: number;
}

/** An administrator has set what a namespace may hold. */
export interface NamespaceSet {
  type: "scheduler.namespace_set";
  message_id: string;
  occurred_at: string;
  revision: number;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  gpu_limit: number | null;
  guaranteed_gpus: number;
  weight: number;
}

/**
 * A namespace with rules, or that holds GPUs or waits for some. `gpus` counts shares by size.
 *
 * Of those that wait, the one with the smallest `used_share` is served first: the part of all that
 * it holds, and of what it held of late, over its weight. null where nobody waits beside it.
 */
export interface NamespaceUse {
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  gpus: number;
  gpu_limit: number | null;
  queued: number;
  guaranteed_gpus: number;
  weight: number;
  used_share: number | null;
}

/** An operator has admitted it. */
export interface NodeAdmitted {
  type: "scheduler.node_admitted";
  message_id: string;
  occurred_at: string;
  revision: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
}

/**
 * A node with its devices; `fresh` says whether its readings are recent enough to grant on.
 *
 * `cordon` is that of the whole node; its devices have theirs. `labels` are the agent's, and over
 * them the operator's. Nothing is granted before it is `admitted`.
 */
export interface NodeAllocation {
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  source: Source;
  fresh: boolean;
  devices: DeviceAllocation[];
  cordon: CordonState | null;
  labels: Record<string, string>;
  admitted: boolean;
}

/**
 * With what a node logs in to the bus, and where that listens.
 *
 * The host of `nats_url` is a wildcard where the bus listens on every address of the platform's
 * host. `ca` is the authority of its certificate, in PEM; empty where it has none of its own.
 */
export interface NodeCredentials {
  type: "gateway.node_credentials";
  nats_url: string;
  user: string;
  password: string;
  inbox_prefix: string;
  ca: string;
}

/**
 * A node's GPUs in brief; means count only GPUs with metrics, null if there are none.
 *
 * `past_utilization_percent` is the mean of late, in which what is 15 minutes old counts half.
 * `free_host` is what its pods leave beside GPUs; null: that is not known. Of GPUs that a plugin
 * shares none is allocatable; they are `total_shares`. `note` is what says that they are shared,
 * why none of the node's GPUs is given out, or which pods deleted by force may hold some.
 */
export interface NodeGpuSummary {
  node_name: string;
  total_gpus: number;
  allocatable_gpus: number;
  idle_gpu_count: number;
  avg_utilization_percent: number | null;
  avg_memory_usage_percent: number | null;
  has_metrics: boolean;
  cluster_id: string | null;
  past_utilization_percent: number | null;
  free_host: HostAmounts | null;
  total_shares: number;
  free_shares: number;
  note: string;
}

/**
 * GPUs of a node under one name: an extended resource's, or a DRA driver's.
 *
 * `requested` is what bound, unfinished pods ask for, or claims have allocated; `by_reservation` is
 * the part of it that pods of ours ask for, by the reservation in their label. A pod's part of a
 * GPU counts there as all of it: which parts share one is not known.
 *
 * Where `units_per_gpu` of the resource are one GPU, its `units` are counted too, and those of the
 * memory that belongs to them (null: the node tells none). `whole_requested` GPUs of `requested`
 * are pods' to themselves. `sharing`: a unit is a slice of a GPU, and no pod has one to itself.
 * `is_refused`: what a unit is cannot be told, or is nothing that is given out: neither whole GPUs
 * nor parts; its `capacity` is the GPUs that are known to be there. `note` is the label or name
 * that says that a unit is no whole GPU, with what that means.
 */
export interface NodeGpus {
  resource: string;
  supply: GpuSupply;
  capacity: number;
  allocatable: number;
  requested: number;
  by_reservation: Record<string, number>;
  units_per_gpu: number;
  allocatable_units: number;
  requested_units: number;
  units_by_reservation: Record<string, number>;
  allocatable_memory_units: number | null;
  requested_memory_units: number;
  sharing: GpuSharing | null;
  whole_requested: number;
  is_refused: boolean;
  note: string;
}

/**
 * A code that gives the server `node_id` its credentials once, until `ends_at`.
 *
 * `command` is the line of shell to type on that server: it installs, joins and starts.
 */
export interface NodeInvitation {
  type: "gateway.node_invitation";
  node_id: string;
  code: string;
  ends_at: string;
  command: string;
}

/** An operator has changed labels; `labels` are all that count for it from now on. */
export interface NodeLabelled {
  type: "scheduler.node_labelled";
  message_id: string;
  occurred_at: string;
  revision: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  labels: Record<string, string>;
}

/** Nodes by id. */
export interface NodeList {
  type: "gateway.nodes";
  next_cursor: string | null;
  nodes: NodeView[];
}

/**
 * Which of a cluster's nodes with enough idle GPUs is taken: the one with the most of them, or the
 * one on which the fewest are left over, so that large groups stay whole elsewhere.
 */
export const NodeRanking = ["most_idle", "least_fragmenting"] as const;
export type NodeRanking = (typeof NodeRanking)[number];

/** An operator had it forgotten, with its devices. */
export interface NodeRemoved {
  type: "scheduler.node_removed";
  message_id: string;
  occurred_at: string;
  revision: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  reason: string;
}

/**
 * The chosen node with its GPUs in brief; null leaves the choice to Kubernetes.
 *
 * `node_id` is the name that its cluster has for it, or the id of a node without one. `hostname` is
 * its label `kubernetes.io/hostname`, by which node affinity names it. Without a node the pod has
 * to be kept off `avoided_hostnames`, of which a unit is no whole GPU.
 */
export interface NodeSelection {
  type: "scheduler.node_selection";
  node_id: string | null;
  message: string;
  summary: NodeGpuSummary | null;
  hostname: string | null;
  avoided_hostnames: string[];
}

/** The history of a node's GPUs together. `memory_total_mb` is of those of which it is known. */
export interface NodeSeries {
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  gpus: number;
  memory_total_mb: number | null;
  points: SeriesPoint[];
}

/** Summaries by node name. */
export interface NodeSummaries {
  type: "scheduler.node_summaries_view";
  next_cursor: string | null;
  nodes: Record<string, NodeGpuSummary>;
}

/** A taint as Kubernetes has it; `effect` NoSchedule, PreferNoSchedule or NoExecute. */
export interface NodeTaint {
  key: string;
  effect: string;
  value: string;
}

/**
 * A node as its agents report it. `runtimes` is empty while no executor runs there.
 *
 * `cordon` is that of the whole node; its GPUs have theirs. `reasons` count the GPUs that would not
 * be granted now, though nobody holds them. One that is not `admitted` waits for an administrator.
 * `links` between its GPUs are there where one node is asked for.
 */
export interface NodeView {
  type: "gateway.node";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  source: Source;
  simulated: boolean;
  fresh: boolean;
  gpus_total: number;
  gpus_free: number;
  last_seen_at: string | null;
  host: HostFacts | null;
  labels: Record<string, string>;
  runtimes: RuntimeOffer[];
  cordon: CordonState | null;
  reasons: Record<string, number>;
  admitted: boolean;
  links: GpuLink[];
}

/** Configurations without a measurement; `ordinals` are empty where they were never made. */
export interface NotTried {
  count: number;
  ordinals: number[];
  reason: string;
}

/** What the best experiment is best at. */
export const Objective = [
  "minimize_latency",
  "maximize_throughput",
  "maximize_goodput",
  "maximize_tokens_per_joule",
  "minimize_cost",
  "minimize_ttft",
  "minimize_tpot",
  "maximize_load",
] as const;
export type Objective = (typeof Objective)[number];

/**
 * Answered by `OpenedSecrets`: the values that an attempt's task names, for the node that runs it,
 * as long as it does.
 *
 * The answer goes to that node's own inbox and is in no stream.
 */
export interface OpenSecrets {
  type: "orchestrator.open_secrets";
  /** a namespace, node_ID of a node, or _platform of its services and admins */
  speaker: string;
  attempt_id: string;
}

/** Values by name. */
export interface OpenedSecrets {
  type: "orchestrator.opened_secrets";
  values: Record<string, string>;
}

/**
 * The search. `max_parallel` bounds the reservation requests a task has outstanding at once.
 *
 * `timeout_per_iteration` is in seconds and bounds a whole attempt; `wait_timeout_seconds` runs
 * only while the task holds no GPU. `max_attempts` bounds how often an experiment is tried whose
 * attempts are interrupted, or fail in a way that may pass. `n_initial_random` and `seed` are of
 * searches that draw configurations; without a seed one follows from the task's id. A search tries
 * `max_iterations` configurations at most, 50 if it is not given (`auto`: those of its stages;
 * `successive_halving`: 27, most with few requests), a grid all. Once the attempts have had their
 * GPUs for `max_gpu_hours` together, or these cost `max_cost` by the operator's prices, nothing
 * further starts.
 *
 * With `trust` the baseline and the leaders are measured again, beyond `max_iterations`, until one
 * is ahead by more than chance, runs that something disturbed are set aside and repeated, and the
 * winner is measured with other requests. null: where `strategy` is `auto`.
 *
 * With `keep_engine` a repeat or replay is measured on the engine of the run before it, kept up and
 * its state reset, where that shows as much as a fresh start would.
 *
 * With `warm_start` a search begins with what past tasks of the namespace measured of this model
 * and engine, on one GPU model, by the same benchmark, objective, constraints and SLO.
 *
 * With a `prior` first proposals are in the order that the limits of the GPUs suggest for a model
 * of which an executor has the config.json: by a roofline, or by what AIConfigurator predicts where
 * the orchestrator's host has it and it knows engine, model and GPU.
 *
 * With several `objectives` the first is the one by which the best is named, and `objective`; the
 * search seeks configurations that none beats in all of them, which the report lists.
 *
 * `constraints` are what the best experiment meets at every load, such as `ttft:p99<300ms,
 * tpot:p95<=20ms, error_rate<1%, goodput>=95%`.
 */
export interface OptimizationSpec {
  strategy?: Strategy;
  objective?: Objective;
  max_iterations?: number | null;
  timeout_per_iteration?: number;
  max_parallel?: number;
  wait_timeout_seconds?: number;
  max_attempts?: number;
  n_initial_random?: number | null;
  seed?: number | null;
  max_gpu_hours?: number | null;
  max_cost?: number | null;
  /** one line without control characters or marks of text direction */
  constraints?: string;
  trust?: boolean | null;
  objectives?: Objective[];
  keep_engine?: boolean;
  warm_start?: boolean;
  prior?: "aiconfigurator" | "roofline" | null;
}

/** Of the orchestrator's commands. */
export interface OrchestratorCommandRecorded {
  type: "orchestrator.command_recorded";
  message_id: string;
  occurred_at: string;
  revision: number;
  namespace: string;
  command_id: string;
  sender: string;
  what: string;
  of: string;
  refused: ErrorCode | null;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
}

/** Parallelism to search; one value or a list each. world_size = tp * pp * max(dp, dcp, cp). */
export interface ParallelConfig {
  preset?: string | null;
  presets?: string[];
  tp?: number | number[];
  pp?: number | number[];
  dp?: number | number[];
  cp?: number | number[];
  dcp?: number | number[];
  ep?: number | number[];
  moe_tp?: number | number[];
  moe_ep?: number | number[];
  moe_cluster?: number | number[];
  moe_dense_tp?: number | number[];
  enable_expert_parallel?: boolean | boolean[];
}

/** What the best configuration sets otherwise than the baseline; null: not set. */
export interface ParameterChange {
  name: string;
  baseline: unknown;
  best: unknown;
}

/**
 * `share` is how much of the scores' variance lies between the parameter's values, 0 to 1.
 *
 * null: too few experiments, or every one has a value of its own. Those that are known add up to 1:
 * the last one, without `values`, is what no parameter alone explains.
 */
export interface ParameterImportance {
  name: string;
  share: number | null;
  values: ValueMean[];
}

/** How a parameter's value is written. */
export const ParameterKind = ["integer", "number", "switch", "choice"] as const;
export type ParameterKind = (typeof ParameterKind)[number];

/** A configuration that no other beats in both; tokens per second of each GPU. */
export interface ParetoPoint {
  ordinal: number;
  mean_e2e_latency: number;
  throughput_per_gpu: number;
}

/** Start no further experiment; what runs goes on. */
export interface PauseTask {
  type: "orchestrator.pause_task";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a namespace, node_ID of a node, or _platform of its services and admins */
  speaker?: string;
  task_id: string;
}

/** How a penalty begins at its threshold: `exponential` with the weight, `continuous` with 0. */
export const PenaltyForm = ["exponential", "continuous"] as const;
export type PenaltyForm = (typeof PenaltyForm)[number];

/** Of the known readings, between neighbours by proportion; null when all were unknown. */
export interface Percentiles {
  p50: number | null;
  p95: number | null;
}

/** One phase of an attempt. */
export interface PhaseTiming {
  phase: AttemptPhase;
  started_at: string;
  duration_seconds: number;
}

/** `pack` fills the fullest node that fits, `spread` takes the emptiest. */
export const Placement = ["pack", "spread"] as const;
export type Placement = (typeof Placement)[number];

/**
 * What a plan costs at most on the cheapest, and on the dearest, of the GPU models that it may
 * take.
 */
export interface PlanCost {
  least: number;
  most: number;
  currency: string;
}

/** When the largest experiment would have its GPUs; `expected_at` null: now, or not known. */
export interface PlanStart {
  is_now: boolean;
  expected_at: string | null;
  message: string;
}

/** One configuration with the GPUs it asks for, and what was known before it takes any. */
export interface PlannedExperiment {
  type: "orchestrator.planned_experiment";
  ordinal: number;
  parameters: Record<string, unknown>;
  engine: EngineSpec;
  request: GpuRequest;
  memory_source: MemorySource;
  preflight: Finding[];
  power_limit_w: number | null;
  sm_clock_mhz: number | null;
  memory_estimate: MemoryEstimate | null;
}

/**
 * A pod and how many devices it had, or parts of them. `reservation_id` null: Kubernetes placed it
 * by itself.
 */
export interface PodLine {
  namespace: string;
  pod: string;
  owner: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  kind: string;
  devices: number;
  reservation_id: string | null;
  first_at: string;
  last_at: string;
}

/** By namespace and name; `left_out` were too many. */
export interface PodList {
  type: "results.pods";
  pods: PodLine[];
  left_out: number;
}

/**
 * The history of a pod on one device.
 *
 * `memory_given_mb` is what of its memory it was given; null: nothing tells.
 */
export interface PodSeries {
  namespace: string;
  pod: string;
  owner: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  device_uuid: string;
  index: number;
  kind: string;
  percent: number | null;
  memory_given_mb: number | null;
  reading: WhoseReading;
  points: SeriesPoint[];
}

/** What the processes of one of several pods on a GPU use of it; null is unknown. */
export type PodUse = [
  uid: string,
  memory_used_mb: number | null,
  utilization_percent: number | null,
];

/**
 * What a policy makes of the requests. Waits are of the granted ones.
 *
 * `used_percent` is how full the fleet was, `packed_percent` how full nodes were that held
 * anything, both by GPU time.
 */
export interface PolicyOutcome {
  requests: number;
  granted: number;
  waiting: number;
  preempted: number;
  used_percent: number;
  packed_percent: number;
  p50_seconds: number | null;
  p95_seconds: number | null;
  namespaces: NamespaceOutcome[];
}

/**
 * The same requests on the same fleet, served by the present policy and by the tried one.
 *
 * `recorded_*` are the waits as they were: how far the present policy's are from them is how far
 * the trial is from what happens. `left_out` says in sentences what it knows nothing of.
 */
export interface PolicyTrial {
  type: "scheduler.policy_trial";
  policy: TriedPolicy;
  start_at: string;
  end_at: string;
  decisions: number;
  recorded_p50_seconds: number | null;
  recorded_p95_seconds: number | null;
  present: PolicyOutcome;
  tried: PolicyOutcome;
  left_out: string[];
}

/**
 * Caps a device's power, locks its SM clock, or both; null for both takes both back.
 *
 * Without a reservation it is an admin's.
 */
export interface PowerLimitRequest {
  /** one line without control characters or marks of text direction */
  device_uuid: string;
  power_limit_w: number | null;
  reservation_id?: string | null;
  sm_clock_mhz?: number | null;
}

/**
 * Whether GPUs compute in a number format; without `gpu` and `capability` all are looked at.
 *
 * `gpu` is a model's name (V100), `capability` its compute capability (7.0), which goes first.
 */
export interface PrecisionCheck {
  type: "precision";
  precision: string;
  gpu?: string | null;
  capability?: string | null;
  rules?: PrecisionRules;
}

/** `hardware`: what GPUs have units for. `documented`: the accelerator guide to the letter. */
export const PrecisionRules = ["hardware", "documented"] as const;
export type PrecisionRules = (typeof PrecisionRules)[number];

/** Why a reservation has to give way to another one. */
export const PreemptionCause = ["priority", "guarantee"] as const;
export type PreemptionCause = (typeof PreemptionCause)[number];

/**
 * A selector that is liked, not needed: devices that match come first, by the sum of weights.
 */
export interface Preference {
  selector: Selector;
  weight?: number;
}

/**
 * What the engine's counters say of a level's prompt tokens; null where it has none.
 *
 * What every prompt of the chat template has in common is not counted as hit. `asked_share` is how
 * much of the prompts of a warm scenario had been sent or answered before, in the engine's tokens;
 * `trace_share` the same of the trace whose requests these were. Of an engine without counters the
 * hits are those that its answers report, of prompts that share something.
 */
export interface PrefixCacheUse {
  reset: CacheReset;
  queried_tokens: number | null;
  hit_tokens: number | null;
  hit_share: number | null;
  asked_share: number | null;
  trace_share: number | null;
}

/** Parameters with a name, as files of presets have them. */
export interface Preset {
  /** text without control characters or marks of text direction */
  description?: string;
  engine?: string | null;
  parameters: Record<string, (string | number | boolean | null)[] | Choice | Categorical | IntegerRange | ContinuousRange>;
  /** 1 to 128 letters, digits, _, . and -, the first and last a letter or digit */
  name: string;
}

/** A ClusterBaseModel or ClusterServingRuntime to create, from a preset or spelled out. */
export interface PresetConfig {
  preset?: string | null;
  name?: string | null;
  config_overrides?: Record<string, unknown>;
}

/** A parameter that several presets give different values; `outcome` says which it has. */
export interface PresetConflict {
  /** 1 to 64 letters, digits, - and _, the first a letter */
  parameter: string;
  presets: string[];
  outcome: string;
}

/** What is saved under a name. With `engine` only tasks of that engine take it. */
export interface PresetContent {
  /** text without control characters or marks of text direction */
  description?: string;
  engine?: string | null;
  parameters: Record<string, (string | number | boolean | null)[] | Choice | Categorical | IntegerRange | ContinuousRange>;
}

/** Deleted on request. */
export interface PresetDeleted {
  type: "orchestrator.preset_deleted";
  message_id: string;
  occurred_at: string;
  revision: number;
  preset_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  /** 1 to 128 letters, digits, _, . and -, the first and last a letter or digit */
  name: string;
}

/** What `export` writes and `import` reads. */
export interface PresetFile {
  presets: Preset[];
}

/** By namespace and name, those of this release last. */
export interface PresetList {
  type: "orchestrator.presets";
  next_cursor: string | null;
  presets: PresetView[];
}

/** How presets that give the same parameter become one. */
export const PresetMerge = ["last_wins", "union", "intersection"] as const;
export type PresetMerge = (typeof PresetMerge)[number];

/** New, or with new content. */
export interface PresetSaved {
  type: "orchestrator.preset_saved";
  message_id: string;
  occurred_at: string;
  revision: number;
  preset_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  /** 1 to 128 letters, digits, _, . and -, the first and last a letter or digit */
  name: string;
}

/**
 * `namespace` null: it comes with this release, is there in every namespace, and never changes.
 * `revision` grows with every change.
 */
export interface PresetView {
  type: "orchestrator.preset";
  namespace: string | null;
  /** 1 to 128 letters, digits, _, . and -, the first and last a letter or digit */
  name: string;
  description: string;
  engine: string | null;
  parameters: Record<string, (string | number | boolean | null)[] | Choice | Categorical | IntegerRange | ContinuousRange>;
  revision: number;
  preset_id: string | null;
  saved_at: string | null;
}

/** An error in the form of RFC 9457, with our closed `code` and the offending field's `path`. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  code: string;
  path?: string | null;
  instance?: string | null;
  details?: Record<string, unknown>;
}

/** A stored event of a user; its cursor follows once it has passed the bus. */
export interface Published {
  type: "gateway.published";
  message_id: string;
}

/**
 * In the order of the prompts; null: no answer. `accuracy` is the share of `questions` that were
 * answered rightly; null: there were none.
 */
export interface QualityAnswers {
  answers: (string | null)[];
  accuracy: number | null;
  questions: number;
}

/**
 * Greedy answers to that many fixed `prompts`, each of `max_tokens` at most, compared with those of
 * the task's first configuration. A configuration whose answers agree by less than `min_agreement`
 * is not best.
 *
 * `accuracy_file`, below a model root of the executor, has a question a line: `{"prompt": "...",
 * "answer": "..."}`, answered rightly if the answer occurs; at most `max_accuracy_loss` of them may
 * be lost. With 0 prompts and no file nothing is asked.
 */
export interface QualityProbe {
  prompts?: number;
  max_tokens?: number;
  min_agreement?: number;
  accuracy_file?: string | null;
  max_accuracy_loss?: number;
}

/**
 * Answers against those of the experiment `baseline`, by ordinal.
 *
 * `agreement` is how far an answer goes with the baseline's before its first other character, as a
 * share of the longer one; the mean over the `compared` prompts, null without any. `identical` of
 * them are the same to the end. `excess` is how far it is from what the probe asks for; 0, it is
 * met.
 */
export interface QualityVerdict {
  baseline: number;
  compared: number;
  identical: number;
  agreement: number | null;
  min_agreement: number;
  first_divergence: Divergence | null;
  accuracy: number | null;
  baseline_accuracy: number | null;
  excess: number;
}

/**
 * Quantization to search: presets by name, or data types of the parts; one value or a list each.
 */
export interface QuantConfig {
  preset?: string | null;
  presets?: string[];
  gemm_dtype?: string | string[] | null;
  kvcache_dtype?: string | string[] | null;
  attention_dtype?: string | string[] | null;
  moe_dtype?: string | string[] | null;
}

/**
 * How far one rank is.
 *
 * `ready`: all is there that starting needs. `ending`: it starts nothing any more, but something of
 * it may still run; `ended`: nothing does.
 */
export const RankState = ["preparing", "ready", "running", "ending", "ended"] as const;
export type RankState = (typeof RankState)[number];

/**
 * One rank as its executor has it.
 *
 * `failure` is why it ends, also where the attempt itself has another. `over_seconds` is how long
 * ago it was over, null where the executor has been restarted since. `address` is where other nodes
 * reach engines of this one, null if it is not known.
 */
export interface RankView {
  type: "executor.rank";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  attempt_id: string;
  rank: number;
  state: RankState;
  failure: Failure | null;
  over_seconds: number | null;
  address: string | null;
}

/**
 * What an attempt's engine wrote. Answered by `LogChunk`; `not_found` if nothing is kept.
 *
 * From byte `offset` of all that it ever wrote, or, without, the last `max_lines`.
 */
export interface ReadLog {
  type: "executor.read_log";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  attempt_id: string;
  offset?: number | null;
  max_lines?: number;
}

/** Where readings of a node's GPUs come from, the best first. */
export const ReadingsSource = ["agent", "dcgm", "nvidia_smi"] as const;
export type ReadingsSource = (typeof ReadingsSource)[number];

/**
 * One cause of waiting: a code for programs, a sentence for people, and where.
 *
 * The sentence about a device begins `GPU INDEX on NODE `, the one about a node `NODE `.
 */
export interface Reason {
  code: ReasonCode;
  message: string;
  node_id: string | null;
  device_uuid: string | null;
}

/** Why a device, a node or the whole fleet does not serve a request now. */
export const ReasonCode = [
  "held",
  "quarantined",
  "cordoned",
  "unhealthy",
  "no_reading",
  "stale_reading",
  "awaiting_snapshot",
  "utilization_unknown",
  "memory_unknown",
  "utilization_above_limit",
  "insufficient_free_memory",
  "insufficient_total_memory",
  "node_mismatch",
  "model_mismatch",
  "uuid_mismatch",
  "compute_capability_mismatch",
  "cuda_driver_mismatch",
  "numa_mismatch",
  "index_mismatch",
  "label_mismatch",
  "selector_unknown",
  "mig_enabled",
  "foreign_process",
  "processes_unknown",
  "node_lost",
  "not_admitted",
  "insufficient_cpu",
  "insufficient_host_memory",
  "too_few_nodes",
  "kept_for_earlier",
  "too_few_devices",
  "memory_unbalanced",
  "behind_in_queue",
  "no_gpus",
  "exceeds_largest_node",
  "given_out_by_cluster",
  "not_divisible",
  "mig_profile_mismatch",
  "mps_per_gpu",
  "mig_not_made",
  "shares_not_enforced",
  "insufficient_shares",
  "shares_fragmented",
  "mixed_models",
  "over_quota",
  "exceeds_quota",
  "awaiting_cluster",
  "ended",
] as const;
export type ReasonCode = (typeof ReasonCode)[number];

/**
 * Nothing was changed.
 *
 * `path` names the offending field as `$.a.b[0]`; null when no single field is at fault.
 */
export interface Refused {
  type: "refused";
  code: ErrorCode;
  message: string;
  command_id: string | null;
  path: string | null;
  details: Record<string, unknown>;
}

/** Sets labels of a node; null takes one away. They win over what the node's agent reports. */
export interface Relabelling {
  labels: Record<string, string | null>;
}

/**
 * Give the devices back.
 *
 * `stopped`: nothing of it runs any more; False sends the devices into quarantine first.
 */
export interface ReleaseReservation {
  type: "scheduler.release_reservation";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a namespace, node_ID of a node, or _platform of its services and admins */
  speaker?: string;
  reservation_id: string;
  epoch: number;
  stopped?: boolean;
  reason?: string;
}

/**
 * Forget a node that has left; one that reports again is new.
 *
 * `end_held` ends what is held there, on the sender's word that nothing of it runs any more.
 * Refused for a node that still reports, and without `end_held` for one that is held.
 */
export interface RemoveNode {
  type: "scheduler.remove_node";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  end_held?: boolean;
  /** one line without control characters or marks of text direction */
  reason?: string;
}

/** Forget a secret. A task that names it fails where it starts an engine. */
export interface RemoveSecret {
  type: "orchestrator.remove_secret";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  /**
   * a variable such as HF_TOKEN: capital letters, digits and _, not of GPUSTEWARD_, with the end
   * _TOKEN, _KEY, _KEY_ID, _SECRET, _PASSWORD, _CREDENTIALS or _CONNECTION_STRING
   */
  name: string;
}

/**
 * Keep a lease. `activate`: the holder is about to start; granted becomes active.
 *
 * Refused with `lease_lost` or `stale_epoch`, after which the holder stops.
 */
export interface RenewReservation {
  type: "scheduler.renew_reservation";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a namespace, node_ID of a node, or _platform of its services and admins */
  speaker?: string;
  reservation_id: string;
  epoch: number;
  activate?: boolean;
}

/**
 * Decisions decided again, oldest first; `keyframe_id` is where that began.
 *
 * `checked` counts every decision on the way, also those that are not listed; `different` those of
 * them that came out otherwise. `next_from_id` is set where more follow.
 */
export interface Replay {
  type: "scheduler.replay_view";
  decisions: ReplayedDecision[];
  keyframe_id: number | null;
  checked: number;
  different: number;
  next_from_id: number | null;
}

/**
 * Decide again what was recorded, by the same rules. Answered by `Replay`.
 *
 * From `from_id` on, which begins at the keyframe before it; with a `reservation_id` only what
 * concerns it is in the answer. Nothing is changed.
 */
export interface ReplayDecisions {
  type: "scheduler.replay";
  from_id?: number | null;
  reservation_id?: string | null;
  limit?: number;
}

/** A recorded turn decided again. `replayed` is null where it is what was recorded. */
export interface ReplayedDecision {
  decision_id: number;
  term: number;
  decided_at: string;
  same: boolean;
  recorded: unknown;
  replayed: unknown;
}

/** Usage per namespace, largest first. */
export interface ReportView {
  type: "results.report_view";
  rows: UsageRow[];
}

/**
 * One engine of a task over several, by its name for people: how many of its configurations were
 * tried and measured, and the best of them. `worse_percent` as in `ReportedExperiment`; `remark` is
 * why there is none.
 */
export interface ReportedEngine {
  title: string;
  experiments: number;
  measured: number;
  best: number | null;
  score: number | null;
  worse_percent: number | null;
  remark: string;
}

/**
 * A measured configuration. `worse_percent` is by how much its score is behind the best one's;
 * null: it is not comparable, for the reason in `because`. `quality`: its answers, where they were
 * compared. `boundary`: where the greatest load lies that meets the constraints, where it was
 * searched. `predicted_score` is what the task's prior foresaw.
 */
export interface ReportedExperiment {
  experiment_id: string;
  ordinal: number;
  parameters: Record<string, unknown>;
  score: number | null;
  worse_percent: number | null;
  because: string;
  quality: QualityVerdict | null;
  boundary: LoadBoundary | null;
  predicted_score: number | null;
}

/**
 * A level's requests, completed and failed, one of every `one_in` of them.
 *
 * `packed` is zlib over five columns of little-endian unsigned 32-bit values: `ttft` and
 * `e2e_latency` in microseconds, input tokens, output tokens, place in `error_codes`; of
 * conversations a sixth, the turn, of answers in pieces a seventh, the tokens of the first one; all
 * ones is unknown or none. Of each column come the lowest bytes of all values, then the next ones.
 */
export interface RequestColumns {
  count: number;
  packed: string;
  error_codes: string[];
  one_in: number;
}

/**
 * Ask for GPUs. Accepted means stored; the grant, rejection or time-out follows as an event.
 *
 * The sender chooses `reservation_id`. `holder` says for what, for people (`exec/<user>`, or what
 * `experiment_holder` makes), `requester` who asks: the gateway fills it in.
 */
export interface RequestReservation {
  type: "scheduler.request_reservation";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace?: string;
  /** one line without control characters or marks of text direction */
  holder?: string;
  request?: GpuRequest;
  /** one line without control characters or marks of text direction */
  requester?: string;
}

/** What people may say of a resource's request. */
export const RequestsPolicy = ["disabled", "required", "fromLimits"] as const;
export type RequestsPolicy = (typeof RequestsPolicy)[number];

/**
 * Measured requests, completed ones first, as columns of equal length; null is unknown.
 *
 * Times in seconds. With an `error`, `e2e_latency` is how long the request took to fail. Of very
 * many only one in `one_in` is kept. `num_first_tokens` came with the first piece.
 */
export interface RequestsView {
  type: "results.requests";
  experiment_id: string;
  attempt_id: string;
  level: number;
  scenario: string;
  num_concurrency: number;
  one_in: number;
  ttft: (number | null)[];
  e2e_latency: (number | null)[];
  num_input_tokens: (number | null)[];
  num_output_tokens: (number | null)[];
  error: (string | null)[];
  turn: (number | null)[];
  num_first_tokens: number[];
}

/** The holder confirmed that it starts. */
export interface ReservationActivated {
  type: "scheduler.reservation_activated";
  message_id: string;
  occurred_at: string;
  revision: number;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  requester: string;
  epoch: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
}

/** Ended on request. */
export interface ReservationCancelled {
  type: "scheduler.reservation_cancelled";
  message_id: string;
  occurred_at: string;
  revision: number;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  requester: string;
  epoch: number | null;
  node_id: string | null;
  devices: DeviceGrant[];
  reason: string;
}

/** It is not found idle before `until_at`. */
export interface ReservationExempted {
  type: "scheduler.reservation_exempted";
  message_id: string;
  occurred_at: string;
  revision: number;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  requester: string;
  reason: string;
  until_at: string;
}

/** The lease ran out; the devices are quarantined until the node confirms the stop. */
export interface ReservationExpired {
  type: "scheduler.reservation_expired";
  message_id: string;
  occurred_at: string;
  revision: number;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  requester: string;
  epoch: number | null;
  node_id: string | null;
  devices: DeviceGrant[];
  reason: string;
}

/** It was idle, and is used again or exempted; what it was warned of does not follow. */
export interface ReservationFoundActive {
  type: "scheduler.reservation_found_active";
  message_id: string;
  occurred_at: string;
  revision: number;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  requester: string;
}

/**
 * Nothing has used its GPUs since `since_at`. `acts_at` is when `action` follows unless something
 * does; null where nothing follows.
 */
export interface ReservationFoundIdle {
  type: "scheduler.reservation_found_idle";
  message_id: string;
  occurred_at: string;
  revision: number;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  requester: string;
  since_at: string;
  action: IdleAction;
  acts_at: string | null;
}

/**
 * Devices are held for this reservation under `epoch` until the lease ends without renewal.
 *
 * `node_id` is the first of `node_ids`; more than one is a gang. With `cluster` there are no
 * `devices`, `node_id` is the cluster's. `forecast_start_at`: as its wait began; null: unknown.
 */
export interface ReservationGranted {
  type: "scheduler.reservation_granted";
  message_id: string;
  occurred_at: string;
  revision: number;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  requester: string;
  epoch: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  devices: DeviceGrant[];
  lease_ttl_seconds: number;
  waited_seconds: number;
  node_ids: string[];
  cluster: ClusterPlacement | null;
  forecast_start_at: string | null;
}

/** Reservations, newest first. */
export interface ReservationList {
  type: "scheduler.reservations";
  next_cursor: string | null;
  reservations: ReservationView[];
}

/** A device or its node failed. */
export interface ReservationLost {
  type: "scheduler.reservation_lost";
  message_id: string;
  occurred_at: string;
  revision: number;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  requester: string;
  epoch: number | null;
  node_id: string | null;
  devices: DeviceGrant[];
  reason: string;
}

/** Still idle: until it is used again, any request that waits may end it, after notice. */
export interface ReservationMadePreemptible {
  type: "scheduler.reservation_made_preemptible";
  message_id: string;
  occurred_at: string;
  revision: number;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  requester: string;
  since_at: string;
}

/** Ended for another request. */
export interface ReservationPreempted {
  type: "scheduler.reservation_preempted";
  message_id: string;
  occurred_at: string;
  revision: number;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  requester: string;
  epoch: number | null;
  node_id: string | null;
  devices: DeviceGrant[];
  reason: string;
}

/** Another request will take these devices; the holder has `grace_seconds` to stop. */
export interface ReservationPreempting {
  type: "scheduler.reservation_preempting";
  message_id: string;
  occurred_at: string;
  revision: number;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  requester: string;
  epoch: number;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  grace_seconds: number;
  preempted_for: string | null;
  cause: PreemptionCause;
}

/** Stored and waiting. `position` counts from 1 at that moment. */
export interface ReservationQueued {
  type: "scheduler.reservation_queued";
  message_id: string;
  occurred_at: string;
  revision: number;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  requester: string;
  request: GpuRequest;
  position: number;
  wait_deadline_at: string;
}

/** Can never fit on this fleet. */
export interface ReservationRejected {
  type: "scheduler.reservation_rejected";
  message_id: string;
  occurred_at: string;
  revision: number;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  requester: string;
  epoch: number | null;
  node_id: string | null;
  devices: DeviceGrant[];
  reason: string;
  reasons: Reason[];
}

/** Given back, stop confirmed. */
export interface ReservationReleased {
  type: "scheduler.reservation_released";
  message_id: string;
  occurred_at: string;
  revision: number;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  requester: string;
  epoch: number | null;
  node_id: string | null;
  devices: DeviceGrant[];
  reason: string;
}

/**
 * Asks for GPUs. `namespace` absent is the caller's own; `holder` says for what, for people.
 *
 * `requester` absent is the caller itself; only an admin names somebody else.
 */
export interface ReservationRequest {
  reservation_id?: string | null;
  namespace?: string | null;
  /** one line without control characters or marks of text direction */
  holder?: string;
  request?: GpuRequest;
  requester?: string | null;
}

/** queued -> granted -> active -> releasing -> released, or one of the other ends. */
export const ReservationState = [
  "queued",
  "granted",
  "active",
  "releasing",
  "released",
  "rejected",
  "cancelled",
  "timed_out",
  "expired",
  "preempted",
  "lost",
] as const;
export type ReservationState = (typeof ReservationState)[number];

/** Queued longer than its wait timeout; `reasons` are those of the last decision. */
export interface ReservationTimedOut {
  type: "scheduler.reservation_timed_out";
  message_id: string;
  occurred_at: string;
  revision: number;
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  requester: string;
  epoch: number | null;
  node_id: string | null;
  devices: DeviceGrant[];
  reason: string;
  reasons: Reason[];
}

/**
 * A reservation as the ledger has it. `queue_position` counts from 1 while queued.
 *
 * With `preempting_until` it has to stop by then; `preempted_for` is what it gives way to. `idle`
 * null: something uses it, or nothing is known. Until `idle_exempt_until` it is never idle.
 * `forecast_start_at`: see `ReservationGranted`. `nearness` is the farthest link that several GPUs
 * of a node need to reach each other, `memory_balance` the smallest free memory of the granted GPUs
 * over the largest at the grant; null with one GPU, and where it is unknown. `summary` is one
 * clause for people about all reasons, of which `reasons` may list some only. `requester` is the
 * person who asked; empty: not known.
 */
export interface ReservationView {
  type: "scheduler.reservation";
  reservation_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  holder: string;
  state: ReservationState;
  request: GpuRequest;
  revision: number;
  requested_at: string;
  wait_deadline_at: string | null;
  queue_position: number | null;
  granted_at: string | null;
  ended_at: string | null;
  epoch: number | null;
  node_id: string | null;
  node_ids: string[];
  devices: DeviceGrant[];
  lease_expires_at: string | null;
  quarantined: boolean;
  reasons: Reason[];
  reason: string;
  preempting_until: string | null;
  preempted_for: string | null;
  preempted_by: PreemptionCause | null;
  cluster: ClusterPlacement | null;
  idle: Idleness | null;
  idle_exempt_until: string | null;
  idle_exempt_reason: string;
  forecast_start_at: string | null;
  nearness: LinkKind | null;
  memory_balance: number | null;
  summary: string;
  requester: string;
}

/**
 * A custom device of a cluster: the resource `key`, counted whole, of a group.
 *
 * `custom_name` is the part of its ConfigMap's name between `cf-crl-` and the key.
 */
export interface ResourceDefinition {
  /** 1 to 63 small letters, digits and -, the first and last no - */
  custom_name: string;
  /** 1 to 63 letters, digits, _, . and -, the first and last a letter or digit */
  group: string;
  /** one resource, such as vendor.com/name */
  key: string;
  default_value: number | null;
  description_zh: string;
  description_en: string;
  limits: LimitsPolicy;
  requests: RequestsPolicy;
  enabled: boolean;
}

/** Go on with a paused task. */
export interface ResumeTask {
  type: "orchestrator.resume_task";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a namespace, node_ID of a node, or _platform of its services and admins */
  speaker?: string;
  task_id: string;
}

/**
 * Takes a device, or with null the whole node, back into service.
 *
 * `confirm_stopped` vouches that nothing runs there any more of what is quarantined.
 */
export interface ReturnToService {
  device_uuid?: string | null;
  confirm_stopped?: boolean;
  /** one line without control characters or marks of text direction */
  reason?: string;
}

/**
 * viewer reads; submitter also changes things of its namespace; owner also sets its limit, tokens
 * and members; admin changes everything. Each may do what those before it may.
 */
export const Role = ["viewer", "submitter", "owner", "admin"] as const;
export type Role = (typeof Role)[number];

/**
 * Seal every secret with the newest key of the platform's; accepted, its `revision` is how many
 * were.
 */
export interface RotateSecretKey {
  type: "orchestrator.rotate_secret_key";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
}

/**
 * What a row of a comparison is about. All but `result` and `trust` have to be the same where the
 * parameters alone are to explain a result.
 */
export const RowKind = [
  "model",
  "engine",
  "version",
  "hardware",
  "load",
  "parameter",
  "result",
  "trust",
] as const;
export type RowKind = (typeof RowKind)[number];

/**
 * `repeats` is the ordinal of the first run of its configuration; null: this is it. `seed`: of the
 * requests, 0 those of the search. For the reasons in `contaminated` another run of the
 * configuration counts in its place, where trust is asked for and there is one. `image_digest` is
 * of the container image that ran. With a `request_divisor` it had so many times fewer requests in
 * each level. `error`: how far its score may be off; null: not by anything that is known. `setting`
 * is what it ran on.
 *
 * `kept_from` is the ordinal of the run for which its engine was started, where it was measured on
 * one that was kept up; null: on a start of its own. `engine_use` says so for people, and how its
 * state was reset, or why it was a fresh start; empty where nothing could be kept up.
 */
export interface RunInfo {
  role: RunRole;
  repeats: number | null;
  seed: number;
  contaminated: string[];
  image_digest: string;
  request_divisor: number;
  error: ScoreError | null;
  setting: RunSetting;
  kept_from: number | null;
  engine_use: string;
}

/**
 * Why an experiment runs: `search` tries a configuration, `repeat` measures one again, `replay`
 * measures the winner with requests that no run before had, `screen` tries a configuration with few
 * requests.
 */
export const RunRole = ["search", "repeat", "replay", "screen"] as const;
export type RunRole = (typeof RunRole)[number];

/**
 * What a run ran on, as far as it decides how fast the same configuration is.
 *
 * Of several GPUs each distinct value, sorted; empty: unknown. Power limits are in watts. The CPU
 * is that of the host that sent the load, `engine_version` the engine's own word.
 */
export interface RunSetting {
  gpu_models: string[];
  memory_total_mb: number[];
  mig_profiles: string[];
  power_limits_w: number[];
  driver_versions: string[];
  cpu_model: string;
  cpu_governor: string;
  engine_version: string;
}

/** An attempt the executor has accepted and not finished. */
export interface RunningAttempt {
  experiment_id: string;
  attempt_id: string;
  attempt_number: number;
  reservation_id: string;
  epoch: number;
  phase: AttemptPhase;
  pids: number[];
}

/** Everything under way. `workloads` null: this executor does not search for labels. */
export interface RunningAttempts {
  type: "executor.running_attempts";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  boot_id: string;
  attempts: RunningAttempt[];
  workloads: RunningWorkload[] | null;
}

/**
 * Processes and containers of a host, or pods of a cluster, that name a reservation.
 *
 * `epoch` and `node_id` are null where the label does not say; several nodes may share a host.
 * `ours`: the label names this installation too.
 */
export interface RunningWorkload {
  reservation_id: string;
  epoch: number | null;
  pids: number[];
  ours: boolean;
  container_ids: string[];
  node_id: string | null;
}

/** Where the inference server runs. */
export const Runtime = ["process", "docker", "ome", "kubernetes", "endpoint"] as const;
export type Runtime = (typeof Runtime)[number];

/**
 * A runtime of an executor, the engines it can start, and for the others what is missing.
 *
 * `engine_rules` has every engine that the executor knows. Models named by a path have to lie below
 * `model_roots`; null: a cluster, which has none of this host's. `serving_runtimes` are its
 * ClusterServingRuntimes with the engine of their image. `image_cuda` is what images there report,
 * as `vllm:v0.8.5` and, for tasks without a tag, `vllm`; `model_precisions` and `model_shapes` what
 * the config.json of models say, `devices` a cluster's custom ones. `task_variables` are the
 * variables that a task may set of an engine's environment, by patterns such as `NCCL_*`.
 */
export interface RuntimeOffer {
  runtime: Runtime;
  engines: string[];
  missing: Record<string, string>;
  version: string | null;
  engine_rules: Record<string, EngineRules>;
  model_roots: string[] | null;
  serving_runtimes: Record<string, string>;
  image_cuda: Record<string, string>;
  model_precisions: Record<string, string[]>;
  devices: ResourceDefinition[];
  model_shapes: Record<string, ModelShape>;
  task_variables: string[];
}

/**
 * Samples by device and time, as columns of equal length; null is unknown.
 *
 * `device` counts in `devices`; times are microseconds since 1970. `interval_seconds` is how often
 * the agent sampled, `boot_id` and `sequence` number its ticks.
 */
export interface SampleList {
  type: "results.samples";
  next_cursor: string | null;
  attempt_id: string;
  devices: SampledDevice[];
  device: number[];
  observed_at_us: number[];
  boot_id: string[];
  sequence: number[];
  interval_seconds: number[];
  utilization_percent: (number | null)[];
  memory_total_mb: (number | null)[];
  memory_used_mb: (number | null)[];
  temperature_c: (number | null)[];
  power_draw_w: (number | null)[];
  power_limit_w: (number | null)[];
  energy_mj: (number | null)[];
  ecc_corrected: (number | null)[];
  ecc_uncorrected: (number | null)[];
}

/** A GPU that samples are of. */
export interface SampledDevice {
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  uuid: string;
  index: number;
  name: string;
  simulated: boolean;
}

/** A spread with the number of readings that were not unknown. */
export interface SampledSpread {
  min: number | null;
  max: number | null;
  mean: number | null;
  samples: number;
}

/**
 * Save all of these or, where one is refused, none. One that is as it is saved stays so.
 *
 * With `expected_revision` each has to have that now; 0: it is not there.
 */
export interface SavePresets {
  type: "orchestrator.save_presets";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  presets: Preset[];
  existing?: ExistingPreset;
  expected_revision?: number | null;
}

/** Of the scheduler's commands. */
export interface SchedulerCommandRecorded {
  type: "scheduler.command_recorded";
  message_id: string;
  occurred_at: string;
  revision: number;
  namespace: string;
  command_id: string;
  sender: string;
  what: string;
  of: string;
  refused: ErrorCode | null;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
}

/**
 * How much better or worse the engine alone may score than its run did, as shares of its score.
 *
 * null: by any amount. `because` names the causes, for people. With `may_meet` the run may have
 * missed the task's constraints by these causes alone.
 */
export interface ScoreError {
  better_share: number | null;
  worse_share: number | null;
  because: string[];
  may_meet: boolean;
}

/** A GPU and its score: 0.6 x free share of memory + 0.4 x idle share. */
export interface ScoredGpu {
  index: number;
  uuid: string;
  score: number;
}

/**
 * Of all attempts. `measuring_gpu_seconds` are those in which load was measured; `cost` null: a GPU
 * model without a price. `max_cost` and `max_gpu_hours` are the task's budget.
 */
export interface SearchCost {
  attempts: number;
  gpu_seconds: number;
  measuring_gpu_seconds: number;
  cost: number | null;
  currency: string;
  max_cost: number | null;
  max_gpu_hours: number | null;
}

/** Secrets by namespace and name. */
export interface SecretList {
  type: "orchestrator.secrets";
  next_cursor: string | null;
  secrets: SecretView[];
}

/** The value of a secret, from 1 to 32,768 bytes in UTF-8 without the character NUL. */
export interface SecretValue {
  value: string;
}

/** A secret without its value. `used_by` are the unfinished tasks that name it. */
export interface SecretView {
  namespace: string;
  name: string;
  revision: number;
  set_at: string;
  set_by: string;
  used_by: string[];
}

/**
 * The node that a deployment would get now. Answered by `NodeSelection`.
 *
 * `request` says all of it, as for a reservation, and goes before the other fields.
 */
export interface SelectNode {
  type: "scheduler.select_node";
  required_gpus?: number;
  utilization_threshold?: number;
  memory_threshold?: number;
  request?: GpuRequest | null;
}

/**
 * A condition on a device or its node.
 *
 * `in` and `not_in` take any number of `values`, `at_least` and `at_most` one, `exists` none.
 * `gpu_model` matches a part of the name, without regard to case. What is unknown matches nothing.
 */
export interface Selector {
  key: SelectorKey;
  operator?: SelectorOperator;
  values?: string[];
  label?: string | null;
}

/** What a selector compares. `label` is a node's label, named by the selector's `label`. */
export const SelectorKey = [
  "node",
  "gpu_model",
  "gpu_uuid",
  "compute_capability",
  "cuda_driver_version",
  "gpu_index",
  "numa_node",
  "label",
] as const;
export type SelectorKey = (typeof SelectorKey)[number];

/** How it is compared. `at_least` and `at_most` compare versions number by number. */
export const SelectorOperator = ["in", "not_in", "at_least", "at_most", "exists"] as const;
export type SelectorOperator = (typeof SelectorOperator)[number];

/**
 * What a series is of.
 *
 * A node's are the means of its GPUs added up, of utilization and temperature averaged; a pod's are
 * of each GPU that it had, by whole minutes; the fleet's are percentiles over all its GPUs.
 */
export const SeriesBy = ["gpu", "node", "pod", "fleet"] as const;
export type SeriesBy = (typeof SeriesBy)[number];

/** What a history query can show. */
export const SeriesMetric = [
  "utilization_percent",
  "memory_used_mb",
  "temperature_c",
  "power_draw_w",
] as const;
export type SeriesMetric = (typeof SeriesMetric)[number];

/** One bucket: its start, and min, max, mean of the known readings. */
export type SeriesPoint = [
  at: string,
  min: number,
  max: number,
  mean: number,
];

/**
 * History per device, node or pod, or of the fleet, whichever was asked for; `left_out` pods were
 * too many.
 */
export interface SeriesView {
  type: "results.series_view";
  metric: SeriesMetric;
  bucket_seconds: number;
  devices: DeviceSeries[];
  nodes: NodeSeries[];
  pods: PodSeries[];
  fleet: FleetPoint[];
  left_out: number;
}

/** The names of the models that a server lists at `/v1/models`. */
export interface ServedModels {
  type: "executor.served_models";
  models: string[];
}

/** A server that runs already. The key is shown to it alone, and stored nowhere. */
export interface ServerAddress {
  /** http:// or https://, a host, and what stands before /v1, if anything */
  url: string;
  api_key?: string | null;
}

/** A server's answer, with its thoughts; `output_tokens` null: the server did not count them. */
export interface ServerAnswer {
  type: "executor.server_answer";
  text: string;
  seconds: number;
  output_tokens: number | null;
}

/** A conversation for a model of the server, whose last message it answers. */
export interface ServerQuestion {
  /** http:// or https://, a host, and what stands before /v1, if anything */
  url: string;
  api_key?: string | null;
  /** one line without control characters or marks of text direction */
  model: string;
  messages: ChatTurn[];
  max_tokens?: number;
}

/** A run that counts only where its configuration has no other, and why. */
export interface SetAside {
  ordinal: number;
  reason: string;
}

/** Sample faster for a while. The fastest of several bursts counts until it ends. */
export interface SetBurst {
  type: "telemetry.burst";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  interval_seconds: number;
  duration_seconds: number;
  experiment_id?: string | null;
}

/**
 * Set what a namespace may hold at once; null takes the limit away.
 *
 * Amounts count GPUs, shares by their size. What is held above a new limit stays held. Up to
 * `guaranteed_gpus` nobody keeps it from; what it holds above that is borrowed. `weight`: how many
 * times as much as one of weight 1 it is due where both wait.
 */
export interface SetNamespace {
  type: "scheduler.set_namespace";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  gpu_limit?: number | null;
  guaranteed_gpus?: number;
  weight?: number;
}

/**
 * Cap a device's power, lock its SM clock, or both; one that is null stays as it is.
 *
 * With neither, both are as before the first of them; a driver does not tell the clock that was
 * locked before, so the device then sets its own. With `reservation_id` that happens when that
 * reservation ends, and always when the agent stops. Refused with what the device allows, or with
 * what the agent may not do.
 */
export interface SetPowerLimit {
  type: "telemetry.set_power_limit";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  device_uuid: string;
  power_limit_w: number | null;
  reservation_id?: string | null;
  sm_clock_mhz?: number | null;
}

/**
 * Keep a value under a name, in place of the one before. Sent by gateways alone, and stored only as
 * it is sealed: neither the command nor its hash is kept.
 */
export interface SetSecret {
  type: "orchestrator.set_secret";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  /**
   * a variable such as HF_TOKEN: capital letters, digits and _, not of GPUSTEWARD_, with the end
   * _TOKEN, _KEY, _KEY_ID, _SECRET, _PASSWORD, _CREDENTIALS or _CONNECTION_STRING
   */
  name: string;
  value: string;
  /** one line without control characters or marks of text direction */
  set_by?: string;
}

/**
 * How a device is divided between holders: `cooperative` ones keep to their parts themselves,
 * nothing enforces it.
 */
export const ShareKind = ["mps", "cooperative"] as const;
export type ShareKind = (typeof ShareKind)[number];

/**
 * How shares that do not fit on one device are divided among those of a node.
 *
 * `evenly` takes the fewest devices and of each about the same; one device if that can hold all.
 * `fill` takes all that the emptiest has, then of the next.
 */
export const ShareStrategy = ["evenly", "fill"] as const;
export type ShareStrategy = (typeof ShareStrategy)[number];

/**
 * How people sign in here. `provider` is what people call the OpenID provider; null: there is none,
 * a token is the only way. `has_device_flow`: a command line may sign in by a code.
 */
export interface SignInOffer {
  type: "gateway.sign_in_offer";
  provider: string | null;
  issuer: string | null;
  has_device_flow: boolean;
}

/** The login has ended here. A browser that goes to `provider_url` ends it at the provider. */
export interface SignedOut {
  type: "gateway.signed_out";
  provider_url: string | null;
}

/**
 * A bound in seconds.
 *
 * `fail_ratio`: with `hard_fail`, how far above it an experiment fails (0.2 = 20 %).
 */
export interface SloBound {
  threshold: number;
  weight?: number;
  hard_fail?: boolean;
  fail_ratio?: number | null;
}

/**
 * Service level objectives. Each time above its threshold, by r as a share of it, worsens the
 * score: weight x exp(r / steepness) more of it, or with `continuous` weight x expm1.
 */
export interface SloSpec {
  latency?: LatencySlo | null;
  ttft?: SloBound | null;
  tpot?: SloBound | null;
  steepness?: number;
  form?: PenaltyForm;
}

/**
 * `penalty` is the sum of the weighted SLO's penalties, already in the score; `failed_because`: the
 * experiment failed, although it was measured. `max_goodput`: requests per second within every
 * bound of a time at once; null without constraints. `quality` null: no answers were compared.
 */
export interface SloVerdict {
  constraints: ConstraintCheck[];
  penalty: number;
  failed_because: string;
  max_goodput: number | null;
  quality: QualityVerdict | null;
}

/**
 * Where readings come from.
 *
 * `none`: the host has no GPU that could be read; the agent reports no devices. `kubernetes` is a
 * cluster, whose nodes' GPUs are read there.
 */
export const Source = [
  "nvml",
  "nvidia-smi",
  "amd",
  "dcgm",
  "simulated",
  "none",
  "kubernetes",
] as const;
export type Source = (typeof Source)[number];

/** Smallest, largest and mean of the known readings; all null when every reading was unknown. */
export interface Spread {
  min: number | null;
  max: number | null;
  mean: number | null;
}

/**
 * Run one attempt on granted devices.
 *
 * Accepted means journaled: the lease is the executor's from then on. `cpu_count` and
 * `host_memory_mb` bound what the engine may take of each node; null leaves that to the node.
 *
 * With `devices` of several nodes it goes to the executor of the first one, without a `gang`; this
 * coordinator sends it on, with one, to each other node, in the order in which they appear.
 *
 * With `cluster` there are no `devices`; the executor is the cluster's. `power_limit_w` and
 * `sm_clock_mhz`, a locked clock, are set on each device before the engine starts; the device's
 * agent takes them back with the reservation.
 *
 * An engine with an `endpoint` runs already: it has neither `devices` nor a lease, the
 * `reservation_id` is no reservation's, and nothing is started or stopped.
 *
 * `secrets` are names alone: the executor asks for their values (`OpenSecrets`) when it starts the
 * engine, and keeps them nowhere.
 *
 * With `keep_seconds` the engine stays up after a success, under the same reservation, for so long
 * at most, so that the next run of the configuration can be measured on it: that start names this
 * attempt in `kept_from`, with the same reservation, epoch, devices and engine. It is refused with
 * `lease_lost` where no such engine is kept up any more. `CancelExperiment` of an attempt that has
 * ended ends the engine that it left.
 */
export interface StartExperiment {
  type: "executor.start_experiment";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a namespace, node_ID of a node, or _platform of its services and admins */
  speaker?: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  experiment_id: string;
  attempt_id: string;
  attempt_number: number;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  reservation_id: string;
  epoch: number;
  lease_ttl_seconds: number;
  devices: DeviceGrant[];
  engine: EngineSpec;
  benchmark: BenchmarkSpec;
  timeout_seconds: number;
  cpu_count?: number | null;
  host_memory_mb?: number | null;
  gang?: GangPlace | null;
  cluster?: ClusterPlacement | null;
  power_limit_w?: number | null;
  sm_clock_mhz?: number | null;
  secrets?: string[];
  keep_seconds?: number | null;
  kept_from?: string | null;
}

/**
 * Watch a node until stopped, or for `max_seconds` at most. Answered by `MonitoringView`.
 *
 * The requester chooses the id; the same id again answers with the running one.
 */
export interface StartMonitoring {
  type: "telemetry.start_monitoring";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  monitoring_id: string;
  interval_seconds?: number;
  max_seconds?: number;
}

/**
 * All ranks are ready: start this one's engine, which finds the others at the leader's address.
 *
 * Accepted means journaled. Refused with `lease_lost` by a rank that has ended.
 */
export interface StartRank {
  type: "executor.start_rank";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a namespace, node_ID of a node, or _platform of its services and admins */
  speaker?: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  attempt_id: string;
  leader_address: string;
  leader_port: number;
}

/**
 * All that had best be made ready on this executor's node, next first; it replaces what was said
 * before. Told every 15 s, to every executor that is present.
 */
export interface StartsWaiting {
  type: "orchestrator.starts_waiting";
  observed_at: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  executor_id: string;
  starts: WaitingStart[];
}

/**
 * Whether the level was in a steady state.
 *
 * `little_error` is |N - X R| / N of requests in flight, their rate and their mean time; `drift`
 * what the latency gains over the window as a share of its mean, 0 where that may be chance. The
 * first `discarded_requests` belonged to the start and are in no figure. null: too few requests.
 */
export interface Steadiness {
  little_error: number | null;
  drift: number | null;
  discarded_requests: number;
}

/**
 * End it and report what was measured. Answered by `MonitoringView`, again and again for ten
 * minutes.
 *
 * Refused with not_found afterwards, and after a restart of the agent.
 */
export interface StopMonitoring {
  type: "telemetry.stop_monitoring";
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  monitoring_id: string;
}

/** Why a task tries no further configuration. */
export const StopReason = [
  "space_exhausted",
  "max_iterations",
  "max_gpu_hours",
  "max_cost",
  "only_crashes_left",
] as const;
export type StopReason = (typeof StopReason)[number];

/** A volume claim that holds the model (Kubernetes). */
export interface StorageSpec {
  type: "hf" | "hostpath" | "pvc";
  pvc_name?: string | null;
  pvc_subpath?: string | null;
  mount_path?: string | null;
}

/** An event in the gateway's log. `cursor` only grows; a client resumes after the last seen. */
export interface StoredEvent {
  cursor: number;
  subject: string;
  type: string;
  message_id: string;
  occurred_at: string;
  event: Record<string, unknown>;
}

/** How the next configuration is chosen. */
export const Strategy = [
  "grid_search",
  "random",
  "bayesian",
  "auto",
  "successive_halving",
] as const;
export type Strategy = (typeof Strategy)[number];

/**
 * Store a task and its experiments and run them. The sender chooses `task_id`; `requester` is who
 * asks, which the gateway fills in.
 */
export interface SubmitTask {
  type: "orchestrator.submit_task";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace?: string;
  task: TaskFile;
  /** one line without control characters or marks of text direction */
  requester?: string;
}

/**
 * The smallest change with which a request would be granted now, and the request so changed.
 *
 * `changes` holds one entry where one is enough; `message` says it as a sentence.
 */
export interface Suggestion {
  changes: ChangeKind[];
  request: GpuRequest;
  message: string;
}

/**
 * Newest summaries by experiment id, their `benchmark` left out.
 *
 * `next_after_experiment_id` is what to ask for next; null: these were the last.
 */
export interface SummaryList {
  type: "results.summaries";
  next_cursor: string | null;
  summaries: SummaryView[];
  next_after_experiment_id: string | null;
}

/**
 * The stored measurements. `benchmark` is the whole stored `BenchmarkResult` as plain data; lists
 * leave it out. `whole_run` reaches from the attempt's start to its end; null: a release that did
 * not keep it. `driver_versions` are those that the attempt's nodes reported last before its end.
 * `image_digest` as in `AttemptFinished`, `dataset` and `trace` as in `benchmark`.
 */
export interface SummaryView {
  type: "results.summary";
  experiment_id: string;
  attempt_id: string;
  task_id: string;
  version: number;
  metrics: BenchmarkMetrics;
  gpu_monitoring: GpuMonitoring;
  benchmark: Record<string, unknown>;
  whole_run: GpuMonitoring | null;
  driver_versions: Record<string, string>;
  image_digest: string | null;
  dataset: DatasetUse | null;
  trace: TraceUse | null;
}

/**
 * Stored with `experiments` experiments; `cut` were left out by `max_iterations`. A search tries so
 * many at most, and stores them one by one.
 */
export interface TaskAccepted {
  type: "orchestrator.task_accepted";
  message_id: string;
  occurred_at: string;
  revision: number;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  task_name: string;
  requester: string;
  experiments: number;
  cut: number;
}

/** Stopped on request; nothing of it runs any more. */
export interface TaskCancelled {
  type: "orchestrator.task_cancelled";
  message_id: string;
  occurred_at: string;
  revision: number;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  task_name: string;
  requester: string;
  reason: string;
}

/** Every experiment ended and at least one succeeded. */
export interface TaskCompleted {
  type: "orchestrator.task_completed";
  message_id: string;
  occurred_at: string;
  revision: number;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  task_name: string;
  requester: string;
  best_experiment_id: string | null;
  succeeded: number;
  failed: number;
  stop_reason: StopReason | null;
}

/** Forgotten on request, with this many experiments; those have no event of their own. */
export interface TaskDeleted {
  type: "orchestrator.task_deleted";
  message_id: string;
  occurred_at: string;
  revision: number;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  task_name: string;
  requester: string;
  experiments: number;
}

/**
 * One of a task's `engines`, with what is its own: no other engine gets any of it.
 *
 * Each of its tags is tried. `model` goes before the task's: a quantization that only this engine
 * reads, or one of several to compare.
 */
export interface TaskEngine {
  /** one line without control characters or marks of text direction */
  base_runtime: string;
  runtime_image_tag?: string[];
  model?: ModelSpec | null;
  env?: Record<string, (string | number | boolean | null)[]>;
  presets?: string[];
  parameters?: Record<string, (string | number | boolean | null)[] | Choice | Categorical | IntegerRange | ContinuousRange>;
  configurations?: (Record<string, string | number | boolean | null>)[] | null;
}

/** Every experiment ended and none succeeded. */
export interface TaskFailed {
  type: "orchestrator.task_failed";
  message_id: string;
  occurred_at: string;
  revision: number;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  task_name: string;
  requester: string;
  reason: string;
  stop_reason: StopReason | null;
}

/**
 * How an engine takes a field of a task's `quant_config` or `parallel_config`, or what it needs to
 * answer its benchmark's requests.
 *
 * Its value becomes that of the parameter `flag`, or the parameters that `values` has for it; for
 * the reason `note` these may be none. What the field `implied_by` says with the same value is not
 * said again. A task that sets one of the parameters `instead_of` says it itself.
 */
export interface TaskField {
  flag?: string | null;
  values?: Record<string, Record<string, unknown>>;
  note?: string;
  implied_by?: string | null;
  instead_of?: string[];
}

/**
 * One tuning task as people write it.
 *
 * Its own `parameters` go before those of its `presets`, which are merged by `preset_merge`. Each
 * of `configurations` has one value of the same parameters, which go together; all other values are
 * tried with each of them.
 *
 * With `engines` in place of a `base_runtime` the search is over several, or several versions of
 * one: what the task gives itself is of all of them, what an engine gives of that one alone. `env`
 * are variables of the engine's environment with the values to try, as far as operators allow them.
 *
 * `secrets` are names of the namespace's secrets: the engine gets each as the variable of that
 * name, and genai-bench HF_TOKEN.
 *
 * `endpoint` is a server that runs already, measured as it is; `base_runtime` is its engine then,
 * or `openai` for any server that speaks OpenAI's API.
 *
 * `deployment_mode` absent: `endpoint` with an `endpoint`; `ome` if a cluster model, serving
 * runtime or volume claim block is there, or if `base_runtime` names no engine we know (it is a
 * ClusterServingRuntime then), else `docker`. `$schema` tells editors where the file's schema is,
 * and nothing else.
 */
export interface TaskFile {
  /** 1 to 128 letters, digits, _, . and -, the first and last a letter or digit */
  task_name: string;
  /** text without control characters or marks of text direction */
  description?: string;
  deployment_mode?: DeploymentMode | null;
  model: ModelSpec;
  /** one line without control characters or marks of text direction */
  base_runtime?: string;
  runtime_image_tag?: string | null;
  engines?: TaskEngine[];
  storage?: StorageSpec | null;
  clusterbasemodel_config?: PresetConfig | null;
  clusterservingruntime_config?: PresetConfig | null;
  presets?: string[];
  preset_merge?: PresetMerge;
  parameters?: Record<string, (string | number | boolean | null)[] | Choice | Categorical | IntegerRange | ContinuousRange>;
  configurations?: (Record<string, string | number | boolean | null>)[] | null;
  env?: Record<string, (string | number | boolean | null)[]>;
  parallel_config?: ParallelConfig | null;
  quant_config?: QuantConfig | null;
  slo?: SloSpec | null;
  gpus?: GpuPreferences | null;
  endpoint?: EndpointConfig | null;
  optimization?: OptimizationSpec;
  benchmark?: BenchmarkConfig;
  secrets?: string[];
  $schema?: string | null;
}

/** Tasks, newest first. */
export interface TaskList {
  type: "orchestrator.tasks";
  next_cursor: string | null;
  tasks: TaskView[];
}

/** No further experiment starts. */
export interface TaskPaused {
  type: "orchestrator.task_paused";
  message_id: string;
  occurred_at: string;
  revision: number;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  task_name: string;
  requester: string;
}

/**
 * A task's expansion. `missing` is what this installation lacks to run it; empty if nothing.
 *
 * A search has no `experiments` yet; it tries `experiments_at_most`, of which `samples` have every
 * different request. `benchmark_tool` would measure every experiment; null if no node could run the
 * task. `gpu_hours_at_most` are those of every experiment to its time limit, within the budget.
 * `cost_at_most` null: its GPUs have no price; that and `start` are the gateway's.
 */
export interface TaskPlan {
  type: "orchestrator.task_plan";
  mode: DeploymentMode;
  strategy: Strategy;
  objective: Objective;
  total: number;
  cut: number;
  experiments: PlannedExperiment[];
  missing: string[];
  notes: string[];
  benchmark_tool: BenchmarkTool | null;
  experiments_at_most: number;
  samples: PlannedExperiment[];
  gpu_hours_at_most: number | null;
  cost_at_most: PlanCost | null;
  start: PlanStart | null;
}

/**
 * `baseline` is the task's first configuration, if it was measured; `changes` lead from it to the
 * best one. `others` are the measured experiments beside the best, best first. `missing` names
 * services whose part is not there because they did not answer. `front` is of a task with several
 * objectives, best by the first one first. `datasets` are those that prompts were of and `traces`
 * those of requests, more than one where the file changed meanwhile. `engines` are of a task over
 * several, best first.
 */
export interface TaskReport {
  type: "gateway.task_report";
  task_id: string;
  task_name: string;
  state: TaskState;
  objective: Objective;
  measure: string;
  verdict: string;
  simulated: boolean;
  experiments: number;
  succeeded: number;
  best: ReportedExperiment | null;
  baseline: ReportedExperiment | null;
  changes: ParameterChange[];
  importance: ParameterImportance[];
  others: ReportedExperiment[];
  not_tried: NotTried[];
  cost: SearchCost | null;
  deployments: Deployments;
  notes: string[];
  stop_reason: StopReason | null;
  trust: TrustVerdict | null;
  pareto: ParetoPoint[];
  missing: string[];
  front: FrontPoint[];
  datasets: DatasetUse[];
  engines: ReportedEngine[];
  traces: TraceUse[];
}

/** Experiments start again. */
export interface TaskResumed {
  type: "orchestrator.task_resumed";
  message_id: string;
  occurred_at: string;
  revision: number;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  task_name: string;
  requester: string;
}

/**
 * What the attempts of a task have held so far, and how long it may still take.
 *
 * `cost` null: a GPU of theirs has no price, or the prices are unknown now. `seconds_left` is by
 * the mean of the attempts that have ended, and as if GPUs were free; null: it is over, or nothing
 * is known yet.
 */
export interface TaskSpending {
  gpu_hours: number;
  cost: number | null;
  currency: string;
  seconds_left: number | null;
}

/** The first experiment asked for GPUs. */
export interface TaskStarted {
  type: "orchestrator.task_started";
  message_id: string;
  occurred_at: string;
  revision: number;
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  task_name: string;
  requester: string;
}

/** accepted -> running <-> paused -> completed (at least one success) | failed | cancelled. */
export const TaskState = [
  "accepted",
  "running",
  "paused",
  "completed",
  "failed",
  "cancelled",
] as const;
export type TaskState = (typeof TaskState)[number];

/**
 * A task as the orchestrator has it. `notes` say what was cut or assumed, `gpu_model` on which GPUs
 * all of its experiments run, once the first has any.
 *
 * `archived`: it has been finished for so long that lists leave it out unless asked.
 * `benchmark_tool` measures every experiment. `imported_at`: the gateway has it from an export of
 * another installation. `experiments_at_most`: a search proposes them one by one, and
 * `experiments_total` are those so far; 0: unknown. `cut` configurations of a grid were left out.
 * `spending` is told where it is asked for, and not in lists. `requester` is the person who
 * submitted it; empty: not known.
 */
export interface TaskView {
  type: "orchestrator.task";
  task_id: string;
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace: string;
  task_name: string;
  description: string;
  state: TaskState;
  mode: DeploymentMode;
  objective: Objective;
  revision: number;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
  cancel_requested: boolean;
  experiments_total: number;
  experiments_by_state: Record<string, number>;
  best_experiment_id: string | null;
  reason: string;
  notes: string[];
  task: TaskFile | null;
  benchmark_tool: BenchmarkTool | null;
  archived: boolean;
  imported_at: string | null;
  experiments_at_most: number;
  stop_reason: StopReason | null;
  cut: number;
  trust: TrustVerdict | null;
  gpu_model: GpuModel | null;
  spending: TaskSpending | null;
  requester: string;
}

/** Tokens, newest first, also those that count no more. */
export interface TokenList {
  type: "gateway.tokens";
  next_cursor: string | null;
  tokens: TokenView[];
}

/**
 * A token to be made. Limits that are null are the gateway's own.
 *
 * A `personal` one acts as the person who makes it, never with more than that person has, and ends
 * with the sign-in at the provider that it was made with. Others are of programs: an admin makes
 * them, and an owner for namespaces of its own.
 */
export interface TokenRequest {
  /** 1 to 128 letters, digits, _, . and -, the first and last a letter or digit */
  name: string;
  role: Role;
  namespaces?: string[];
  expires_in_seconds?: number | null;
  requests_per_second?: number | null;
  body_limit_bytes?: number | null;
  personal?: boolean;
}

/**
 * A token without its secret. It changes things of any of its namespaces; the first is meant where
 * none is named.
 *
 * `from_file`: it stands in the file of tokens of the platform's host. `last_used_at` is right to a
 * minute. `person` is who signed in at the provider for it; with `is_session` it is the sign-in
 * itself, of a browser or the command line, with all that this person may do.
 */
export interface TokenView {
  type: "gateway.token";
  token_id: string;
  name: string;
  role: Role;
  namespaces: string[];
  created_at: string;
  created_by: string;
  from_file: boolean;
  expires_at: string | null;
  revoked_at: string | null;
  last_used_at: string | null;
  requests_per_second: number | null;
  body_limit_bytes: number | null;
  person: string;
  is_session: boolean;
}

/**
 * A trace in Mooncake's form: a JSON object a line, in order of time.
 *
 * Each has a `timestamp` in milliseconds, `input_length` and `output_length` in tokens, and
 * `hash_ids` of the blocks of `block_tokens` that its prompt is made of: requests that begin with
 * the same ids have the same beginning. Lines of one `session_id` are turns, each sent with all
 * before it, `delay` milliseconds after the answer.
 *
 * Requests longer than `max_input_tokens` are left out, with the rest of their session; answers are
 * cut to `max_output_tokens`.
 */
export interface TraceSpec {
  path?: string | null;
  url?: string | null;
  upload?: string | null;
  sha256?: string | null;
  block_tokens?: number;
  max_input_tokens?: number | null;
  max_output_tokens?: number | null;
}

/**
 * What a benchmark took of its trace: the file's SHA-256, its requests, and the `used` ones, the
 * first of `sessions`.
 *
 * `prefix_share` is how much of the tokens of the used prompts came before in the trace, 0 to 1.
 * Prompts of so many tokens were made of words, `tokens_per_word` each, as counted in
 * `length_unit`.
 */
export interface TraceUse {
  sha256: string;
  requests: number;
  used: number;
  sessions: number;
  too_long: number;
  seconds: number;
  prefix_share: number;
  mean_input_tokens: number;
  mean_output_tokens: number;
  tokens_per_word: number;
  length_unit: LengthUnit;
}

/** The present policy with one thing changed. */
export const TriedPolicy = ["density", "no_density", "no_preemption", "no_aging"] as const;
export type TriedPolicy = (typeof TriedPolicy)[number];

/**
 * What repeating the leaders showed. `winner` is the ordinal of its first run; null: nothing could
 * be compared.
 *
 * `noise_floor_percent`: 19 of 20 pairs of runs of the same configuration differ by less; null:
 * none was measured twice. `ties` are those that the winner cannot be distinguished from; it goes
 * before them as it changes the fewest flags. `worst_score` is the worst of `replays` runs of the
 * winner with other requests. `improvement_percent`: how much better another one may truly be, at
 * most; null: by an unknown amount. `front` is of a task with several objectives, the best by the
 * first one first.
 *
 * `order` has every configuration that can be compared, the winner first, then by their means; of
 * those with an `undecided_because` it is not decided whether the winner is better. `repeated` are
 * those of it that were measured again. `engines` are of a task over several, the winner's first.
 */
export interface TrustVerdict {
  winner: number | null;
  noise_floor_percent: number | null;
  ties: number[];
  repeated: TrustedConfiguration[];
  set_aside: SetAside[];
  replays: number;
  worst_score: number | null;
  improvement_percent: number | null;
  incomplete_because: string;
  front: FrontMember[];
  order: TrustedConfiguration[];
  engines: EngineStanding[];
}

/**
 * A configuration, by the `ordinal` of its first run. `mean_score` is of its `runs` that count,
 * `spread_percent` their standard deviation as a share of it; null: a single one.
 *
 * `behind_percent` is of the winner's mean. `undecided_because`: why it may be better than the
 * winner all the same; empty: it is not, or it is a tie.
 */
export interface TrustedConfiguration {
  ordinal: number;
  runs: number;
  mean_score: number;
  spread_percent: number | null;
  behind_percent: number;
  undecided_because: string;
}

/**
 * What would another policy have made of the recorded requests? Answered by `PolicyTrial`; changes
 * nothing. Refused with `not_found` where nothing is recorded.
 */
export interface TryPolicy {
  type: "scheduler.try_policy";
  policy: TriedPolicy;
  since_at: string;
}

/**
 * A level's requests that were the `turn`-th of their conversation, from 1; times are seconds.
 *
 * `mean_input_tokens` count all that was said before. null: no request gave the measure.
 */
export interface TurnResult {
  turn: number;
  num_completed_requests: number;
  mean_input_tokens: number;
  mean_ttft: number;
  p50_ttft: number;
  p99_ttft: number;
  mean_tpot: number | null;
  mean_e2e_latency: number;
}

/**
 * Take a device (null: the whole node) back into service.
 *
 * `confirm_stopped` also frees quarantined holdings.
 */
export interface Uncordon {
  type: "scheduler.uncordon";
  command_id: string;
  /** the name of a user of the bus, or nothing */
  sender?: string;
  /** a node's id: 1 to 128 letters, digits, - and _ */
  node_id: string;
  device_uuid?: string | null;
  confirm_stopped?: boolean;
  /** one line without control characters or marks of text direction */
  reason?: string;
}

/** A file that unfinished tasks use: `tasks` has the names of the first MAX_NAMED_TASKS. */
export interface UploadUse {
  /** 1 to 128 letters, digits, _, . and -, the first and last a letter or digit */
  upload: string;
  /** 64 hexadecimal digits, in small */
  sha256: string;
  tasks: string[];
}

export interface UploadUses {
  type: "orchestrator.upload_uses";
  uses: UploadUse[];
}

/**
 * What a line of a usage report stands for.
 *
 * Pods are those that Kubernetes placed by itself: as namespace/pod, by who keeps them as
 * namespace/kind/name, and their namespace as one of ours of its name. `kind` is how a device was
 * handed out, by the values of `GpuKind`. `person` is who asked, `requester` for what: the holder's
 * label, of an experiment its task. `user` and `team` are read as person and namespace.
 */
export const UsageBy = [
  "namespace",
  "person",
  "requester",
  "model",
  "node",
  "pod",
  "owner",
  "kind",
] as const;
export type UsageBy = (typeof UsageBy)[number];

/**
 * Hours that were held on a day of UTC, by the names with the most; `other_hours` are of all other
 * names together.
 */
export interface UsageDay {
  day_at: string;
  gpu_hours: Record<string, number>;
  other_hours: number;
}

/**
 * What one namespace, person, model, node, pod, owner or kind had: the hours that were held, and of
 * these the used, idle and unknown ones. `previous_gpu_hours` are those of as long a time before.
 *
 * `cost` null: a model without a price. `gpu_limit` is what a namespace may hold at once now, and
 * `limit_percent` how much of it the hours are, over the time asked for; null: without a limit.
 */
export interface UsageLine {
  name: string;
  gpu_hours: number;
  used_hours: number;
  idle_hours: number;
  unknown_hours: number;
  energy_wh: number;
  cost: number | null;
  previous_gpu_hours: number;
  gpu_limit: number | null;
  limit_percent: number | null;
}

/** What one namespace's experiments used. */
export interface UsageRow {
  namespace: string;
  experiments: number;
  gpu_hours: number;
  energy_wh: number | null;
}

/** Most GPU hours first. `total` is of the whole fleet, whatever namespace was asked for. */
export interface UsageView {
  type: "results.usage_view";
  start_at: string;
  end_at: string;
  by: UsageBy;
  lines: UsageLine[];
  total: GpuTime;
  gpus: number;
  currency: string;
  booked: GpuBooking;
  days: UsageDay[];
}

/** What would this task become here? Answered by `TaskPlan`; stores nothing. */
export interface ValidateTask {
  type: "orchestrator.validate_task";
  /** 1 to 63 small letters, digits and -, the first and last none of - */
  namespace?: string;
  task: TaskFile;
}

/**
 * The mean score of the experiments with one value of a parameter, or with values in a range
 * (`1..8`).
 */
export interface ValueMean {
  value: string;
  experiments: number;
  mean_score: number;
}

/**
 * A pod that left the API before its containers were known to have ended: deleted by force.
 *
 * `units` of resources are what it asked for, and may still use.
 */
export interface VanishedPod {
  uid: string;
  namespace: string;
  name: string;
  since_at: string;
  units: Record<string, number>;
  reservation_id: string | null;
}

/** Best first. */
export const Verdict = ["supported", "unstable", "case_by_case", "blocked"] as const;
export type Verdict = (typeof Verdict)[number];

/** A PersistentVolumeClaim, of which `subpath` is mounted read-only at `mount_path`. */
export interface VolumeClaim {
  /** 1 to 253 small letters, digits, - and ., parts between . as in a domain */
  name: string;
  /** an absolute path of letters, digits, _, . and -, without parts . and .. */
  mount_path: string;
  /** a relative path of letters, digits, _, . and -, without parts . and .. */
  subpath?: string;
}

/** What an experiment that waits for GPUs will need: its engine's image, its model. */
export interface WaitingStart {
  task_id: string;
  experiment_id: string;
  attempt_id: string;
  engine: EngineSpec;
}

/**
 * The requests of one namespace that were made in the time. Seconds are of the granted ones;
 * `ended` were neither granted nor wait any more.
 *
 * `expected_off_*` is by how much the time that a request was expected to hold, which times of
 * start are worked out from, missed the one that it did: of the `expected` ones that said so and
 * were given back. `start_off_*` is by how much the start that was expected of a request as it
 * began to wait missed its grant: of the `forecast` ones that waited and of which one was known.
 */
export interface WaitsLine {
  namespace: string;
  requests: number;
  granted: number;
  waiting: number;
  ended: number;
  p50_seconds: number | null;
  p95_seconds: number | null;
  longest_seconds: number | null;
  expected: number;
  expected_off_p50_seconds: number | null;
  expected_off_p95_seconds: number | null;
  forecast: number;
  start_off_p50_seconds: number | null;
  start_off_p90_seconds: number | null;
}

/** Most requests first. */
export interface WaitsView {
  type: "results.waits_view";
  start_at: string;
  end_at: string;
  lines: WaitsLine[];
}

/** What works and could be lost or stand still; the words stay as they are. */
export const WarningCode = [
  "postgres_asynchronous",
  "postgres_standby_away",
  "postgres_standby_behind",
  "stream_replicas",
  "certificate_ends",
] as const;
export type WarningCode = (typeof WarningCode)[number];

/**
 * A reservation or pod that was idle for at least half of the time that is known, or that never had
 * 30 % of the memory that it held. `memory_percent` is the most that it had; null: not known.
 *
 * Of a pod `reservation_id` is Kubernetes' id of it, `owner` who keeps it, such as
 * Deployment/llama. `kind` is a value of `GpuKind`, empty from an older release.
 */
export interface WasteLine {
  reservation_id: string;
  namespace: string;
  holder: string;
  gpu_hours: number;
  idle_hours: number;
  idle_percent: number;
  memory_percent: number | null;
  cost: number | null;
  because: string[];
  pod: string;
  owner: string;
  kind: string;
}

/** Most idle hours first, at most 200. `cost` is of the idle hours. */
export interface WasteView {
  type: "results.waste_view";
  start_at: string;
  end_at: string;
  lines: WasteLine[];
  currency: string;
}

/**
 * `step` is `waiting`, a phase of attempts, or `idle_held`: held and in no phase. While it waits
 * nothing is held. `cost` null: a model without a price.
 */
export interface WaterfallStep {
  step: string;
  seconds: number;
  gpu_seconds: number;
  cost: number | null;
}

/** Every step in its order, summed over the attempts. */
export interface WaterfallView {
  type: "results.waterfall_view";
  subject_id: string;
  attempts: number;
  steps: WaterfallStep[];
  currency: string;
}

/**
 * Would a queued reservation be granted now if it had asked for `request` instead?
 *
 * Judged at its own place in the queue. Answered by `AvailabilityView`; changes nothing.
 */
export interface WhatIf {
  type: "scheduler.what_if";
  names_of?: string[] | null;
  reservation_id: string;
  request: GpuRequest;
}

/** Whose use the readings of a pod are. */
export const WhoseReading = ["own", "gpu"] as const;
export type WhoseReading = (typeof WhoseReading)[number];

/** A measured run, by the executing node's clock. */
export interface Window {
  started_at: string;
  finished_at: string;
}

/** Takes a device, or with null the whole node, out of service. `set_by` says who asks. */
export interface Withdrawal {
  device_uuid?: string | null;
  /** one line without control characters or marks of text direction */
  reason?: string;
  /** one line without control characters or marks of text direction */
  set_by?: string;
}

export type AnyCommand =
  | SetBurst
  | SetPowerLimit
  | ChangeMig
  | CancelReservation
  | ReleaseReservation
  | RenewReservation
  | RequestReservation
  | Cordon
  | Drain
  | Uncordon
  | AdmitNode
  | LabelNode
  | RemoveNode
  | ExemptReservation
  | SetNamespace
  | CancelTask
  | PauseTask
  | ResumeTask
  | SubmitTask
  | DeletePreset
  | SavePresets
  | RemoveSecret
  | RotateSecretKey
  | SetSecret
  | DeleteExperiment
  | DeleteTask
  | CancelExperiment
  | FenceReservation
  | StartExperiment
  | StartRank;

export type AnyEvent =
  | HealthChanged
  | InventoryReported
  | ReservationActivated
  | ReservationCancelled
  | ReservationExpired
  | ReservationGranted
  | ReservationLost
  | ReservationPreempted
  | ReservationPreempting
  | ReservationQueued
  | ReservationRejected
  | ReservationReleased
  | ReservationTimedOut
  | SchedulerCommandRecorded
  | DeviceCordoned
  | DeviceFreed
  | DeviceQuarantined
  | DeviceUncordoned
  | DriftDetected
  | DriftResolved
  | NodeAdmitted
  | NodeLabelled
  | NodeRemoved
  | ReservationExempted
  | ReservationFoundActive
  | ReservationFoundIdle
  | ReservationMadePreemptible
  | NamespaceSet
  | ExperimentCancelled
  | ExperimentFailed
  | ExperimentRetrying
  | ExperimentRunning
  | ExperimentStarting
  | ExperimentSucceeded
  | ExperimentWaiting
  | OrchestratorCommandRecorded
  | TaskAccepted
  | TaskCancelled
  | TaskCompleted
  | TaskFailed
  | TaskPaused
  | TaskResumed
  | TaskStarted
  | PresetDeleted
  | PresetSaved
  | ExperimentDeleted
  | TaskDeleted
  | AttemptFinished
  | AttemptPhaseChanged
  | AttemptStarted
  | ExecutorReported
  | ExperimentSummarized
  | CustomEvent;

export type AnyLive = ClusterChanged | StartsWaiting | AttemptProgressed | AttemptLogged;

export type MessageType =
  | "telemetry.snapshot"
  | "telemetry.gpu_sampled"
  | "telemetry.health_changed"
  | "telemetry.inventory_reported"
  | "telemetry.burst"
  | "telemetry.set_power_limit"
  | "telemetry.change_mig"
  | "telemetry.engine_sampled"
  | "telemetry.agent"
  | "telemetry.gpu_info"
  | "telemetry.start_monitoring"
  | "telemetry.stop_monitoring"
  | "scheduler.cancel_reservation"
  | "scheduler.release_reservation"
  | "scheduler.renew_reservation"
  | "scheduler.request_reservation"
  | "scheduler.reservation_activated"
  | "scheduler.reservation_cancelled"
  | "scheduler.reservation_expired"
  | "scheduler.reservation_granted"
  | "scheduler.reservation_lost"
  | "scheduler.reservation_preempted"
  | "scheduler.reservation_preempting"
  | "scheduler.reservation_queued"
  | "scheduler.reservation_rejected"
  | "scheduler.reservation_released"
  | "scheduler.reservation_timed_out"
  | "scheduler.command_recorded"
  | "scheduler.cordon"
  | "scheduler.device_cordoned"
  | "scheduler.device_freed"
  | "scheduler.device_quarantined"
  | "scheduler.device_uncordoned"
  | "scheduler.drain"
  | "scheduler.uncordon"
  | "scheduler.drift_detected"
  | "scheduler.drift_resolved"
  | "scheduler.admit_node"
  | "scheduler.label_node"
  | "scheduler.node_admitted"
  | "scheduler.node_labelled"
  | "scheduler.node_removed"
  | "scheduler.remove_node"
  | "scheduler.exempt_reservation"
  | "scheduler.reservation_exempted"
  | "scheduler.reservation_found_active"
  | "scheduler.reservation_found_idle"
  | "scheduler.reservation_made_preemptible"
  | "scheduler.list_namespaces"
  | "scheduler.namespace_set"
  | "scheduler.set_namespace"
  | "scheduler.cluster_status"
  | "scheduler.node_summaries"
  | "scheduler.select_node"
  | "scheduler.try_policy"
  | "scheduler.estimate"
  | "scheduler.explain"
  | "scheduler.allocation_map"
  | "scheduler.availability"
  | "scheduler.get_reservation"
  | "scheduler.decisions"
  | "scheduler.drifts"
  | "scheduler.list_reservations"
  | "scheduler.replay"
  | "scheduler.what_if"
  | "scheduler.available_gpus"
  | "cluster.changed"
  | "cluster.get_cluster"
  | "orchestrator.cancel_task"
  | "orchestrator.experiment_cancelled"
  | "orchestrator.experiment_failed"
  | "orchestrator.experiment_retrying"
  | "orchestrator.experiment_running"
  | "orchestrator.experiment_starting"
  | "orchestrator.experiment_succeeded"
  | "orchestrator.experiment_waiting"
  | "orchestrator.command_recorded"
  | "orchestrator.pause_task"
  | "orchestrator.resume_task"
  | "orchestrator.starts_waiting"
  | "orchestrator.submit_task"
  | "orchestrator.task_accepted"
  | "orchestrator.task_cancelled"
  | "orchestrator.task_completed"
  | "orchestrator.task_failed"
  | "orchestrator.task_paused"
  | "orchestrator.task_resumed"
  | "orchestrator.task_started"
  | "orchestrator.get_experiment"
  | "orchestrator.get_task"
  | "orchestrator.list_experiments"
  | "orchestrator.list_tasks"
  | "orchestrator.validate_task"
  | "orchestrator.list_leaders"
  | "orchestrator.delete_preset"
  | "orchestrator.get_preset"
  | "orchestrator.list_presets"
  | "orchestrator.merge_presets"
  | "orchestrator.preset_deleted"
  | "orchestrator.preset_saved"
  | "orchestrator.save_presets"
  | "orchestrator.list_secrets"
  | "orchestrator.open_secrets"
  | "orchestrator.remove_secret"
  | "orchestrator.rotate_secret_key"
  | "orchestrator.set_secret"
  | "orchestrator.list_upload_uses"
  | "orchestrator.delete_experiment"
  | "orchestrator.delete_task"
  | "orchestrator.experiment_deleted"
  | "orchestrator.task_deleted"
  | "executor.attempt_finished"
  | "executor.attempt_phase_changed"
  | "executor.attempt_progressed"
  | "executor.attempt_started"
  | "executor.cancel_experiment"
  | "executor.executor_reported"
  | "executor.fence_reservation"
  | "executor.start_experiment"
  | "executor.attempt_logged"
  | "executor.read_log"
  | "executor.ask_server"
  | "executor.list_served_models"
  | "executor.list_running"
  | "executor.get_rank"
  | "executor.start_rank"
  | "results.experiment_summarized"
  | "results.get_memory_trend"
  | "results.report"
  | "results.get_requests"
  | "results.get_summary"
  | "results.list_samples"
  | "results.list_summaries"
  | "results.get_gpu_prices"
  | "results.engine_series"
  | "results.list_engine_samples"
  | "results.failures"
  | "results.idle"
  | "results.usage"
  | "results.waits"
  | "results.waste"
  | "results.waterfall"
  | "results.series"
  | "results.list_pods"
  | "gateway.custom"
  | "gateway.get_dataset_piece"
  | "executor.get_backlog"
  | "orchestrator.get_backlog"
  | "results.get_backlog"
  | "scheduler.get_backlog";

export const FINISHED_EXPERIMENT_STATES: readonly ExperimentState[] = [
  "succeeded",
  "failed",
  "cancelled",
];

export const FINISHED_TASK_STATES: readonly TaskState[] = [
  "completed",
  "failed",
  "cancelled",
];

export const LIVE_RESERVATION_STATES: readonly ReservationState[] = [
  "granted",
  "active",
  "releasing",
];

export const PAST_HOLDING_STATES: readonly ReservationState[] = [
  "released",
  "cancelled",
  "expired",
  "preempted",
  "lost",
];

export const STOPPED: Record<StopReason, string> = {
  "space_exhausted": "every configuration was tried",
  "max_iterations": "as many were tried as max_iterations allows",
  "max_gpu_hours": "the GPU-hours are used up",
  "max_cost": "the money is used up",
  "only_crashes_left": "what is left would probably crash"
};

/** What each strategy does, and which settings of a task it takes. */
export const STRATEGIES = {
  "grid_search": {
    "is_search": false,
    "takes_warm_start": false,
    "takes_prior": false,
    "needs_optuna": false,
    "checks_best": false
  },
  "random": {
    "is_search": true,
    "takes_warm_start": false,
    "takes_prior": false,
    "needs_optuna": false,
    "checks_best": false
  },
  "bayesian": {
    "is_search": true,
    "takes_warm_start": true,
    "takes_prior": true,
    "needs_optuna": true,
    "checks_best": false
  },
  "auto": {
    "is_search": true,
    "takes_warm_start": true,
    "takes_prior": true,
    "needs_optuna": true,
    "checks_best": true
  },
  "successive_halving": {
    "is_search": true,
    "takes_warm_start": false,
    "takes_prior": false,
    "needs_optuna": false,
    "checks_best": false
  }
} as const satisfies Record<Strategy, Record<string, boolean>>;

/** How each objective is measured, and what a task has to have for it. */
export const OBJECTIVES = {
  "minimize_latency": {
    "measure": "mean_e2e_latency",
    "measure_of_all_gpus": null,
    "needs_load_search": false,
    "needs_time_bound": false,
    "needs_prices": false,
    "counts_requests": false,
    "divides_throughput": false,
    "needs_tokens": false
  },
  "maximize_throughput": {
    "measure": "max_total_throughput_per_gpu",
    "measure_of_all_gpus": "max_total_throughput",
    "needs_load_search": false,
    "needs_time_bound": false,
    "needs_prices": false,
    "counts_requests": false,
    "divides_throughput": false,
    "needs_tokens": false
  },
  "maximize_goodput": {
    "measure": "max_goodput_per_gpu",
    "measure_of_all_gpus": null,
    "needs_load_search": false,
    "needs_time_bound": true,
    "needs_prices": false,
    "counts_requests": true,
    "divides_throughput": false,
    "needs_tokens": false
  },
  "maximize_tokens_per_joule": {
    "measure": "tokens_per_joule",
    "measure_of_all_gpus": null,
    "needs_load_search": false,
    "needs_time_bound": false,
    "needs_prices": false,
    "counts_requests": false,
    "divides_throughput": true,
    "needs_tokens": true
  },
  "minimize_cost": {
    "measure": "cost_per_million_tokens",
    "measure_of_all_gpus": null,
    "needs_load_search": false,
    "needs_time_bound": false,
    "needs_prices": true,
    "counts_requests": false,
    "divides_throughput": true,
    "needs_tokens": true
  },
  "minimize_ttft": {
    "measure": "mean_ttft",
    "measure_of_all_gpus": null,
    "needs_load_search": false,
    "needs_time_bound": false,
    "needs_prices": false,
    "counts_requests": false,
    "divides_throughput": false,
    "needs_tokens": true
  },
  "minimize_tpot": {
    "measure": "mean_tpot",
    "measure_of_all_gpus": null,
    "needs_load_search": false,
    "needs_time_bound": false,
    "needs_prices": false,
    "counts_requests": false,
    "divides_throughput": false,
    "needs_tokens": true
  },
  "maximize_load": {
    "measure": "max_load",
    "measure_of_all_gpus": null,
    "needs_load_search": true,
    "needs_time_bound": false,
    "needs_prices": false,
    "counts_requests": true,
    "divides_throughput": false,
    "needs_tokens": false
  }
} as const satisfies Record<Objective, object>;
