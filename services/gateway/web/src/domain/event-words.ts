import { t } from "@lingui/core/macro";
import type { StoredEvent } from "@schemas/messages";
import { duration } from "@/lib/time";
import { number } from "@/lib/units";
import { holderOf } from "./holder";

/** Names for ids, where the page has them. */
export interface EventNames {
  /** "GPU 3"; of a node's device. */
  gpu: (nodeId: string, uuid: string) => string;
  /** "#12". */
  experiment: (experimentId: string) => string;
}

type Body = Record<string, unknown>;

const text = (value: unknown): string => (typeof value === "string" ? value : "");
const words = (value: unknown): string => text(value).replaceAll("_", " ");
const count = (value: unknown): number => (typeof value === "number" ? value : 0);
/** ": reason" where there is one. */
const because = (reason: unknown): string => (text(reason) ? `: ${text(reason)}` : "");
const gpus = (many: number): string => (many === 1 ? t`1 GPU` : t`${many} GPUs`);

/** What happened, as a sentence; of a type that this page does not know its words. */
export function eventSentence({ type, event }: StoredEvent, names: EventNames): string {
  const body: Body = event;
  const sentence = SENTENCES[type]?.(body, names);
  return sentence ?? words(type.slice(type.indexOf(".") + 1));
}

type Sentence = (body: Body, names: EventNames) => string;

/** "GPU 3", or the whole node. */
const device: Sentence = ({ node_id, device_uuid }, names) =>
  text(device_uuid) ? names.gpu(text(node_id), text(device_uuid)) : t`The node`;
const experiment: Sentence = ({ ordinal, experiment_id }, names) =>
  typeof ordinal === "number" ? `#${ordinal}` : names.experiment(text(experiment_id));
const holder: Sentence = ({ holder: of, reservation_id }) =>
  holderOf(text(of)).name || t`Reservation ${text(reservation_id).slice(-8)}`;
const by: Sentence = ({ requester }) => (text(requester) ? ` (${text(requester)})` : "");

const deviceCount = (body: Body): string =>
  Array.isArray(body.devices) && body.devices.length > 0 ? gpus(body.devices.length) : "GPUs";

const where = ({ node_ids, node_id }: Body): string => {
  const nodes =
    Array.isArray(node_ids) && node_ids.length > 0 ? node_ids.map(text) : [text(node_id)];
  const nodesNamed = nodes.filter(Boolean);
  return nodesNamed.length > 0 ? t` on ${nodesNamed.join(", ")}` : "";
};

const HEALTH: Record<string, string> = {
  agent_started: t`The agent started`,
  agent_stopped: t`The agent stopped`,
  probe_hung: t`the driver does not answer`,
  probe_recovered: t`the driver answers again`,
  gpu_lost: t`is lost`,
  gpu_recovered: t`is back`,
  source_failed: t`Readings failed`,
  source_recovered: t`Readings are back`,
  ecc_uncorrected: t`an uncorrected memory error (ECC)`,
  ecc_storm: t`corrected memory errors (ECC) grow fast`,
  row_remap_pending: t`memory rows wait to be remapped`,
};

/** "GPU 3: XID 79: fell off the bus. Advice: restart the node". */
const health: Sentence = (body, names) => {
  const kind = text(body.change);
  const what = body.xid ? t`XID ${count(body.xid)}` : (HEALTH[kind] ?? words(kind));
  const start = text(body.device_uuid) ? `${device(body, names)}: ${what}` : what;
  const advice = text(body.action) ? t`. Advice: ${words(body.action)}` : "";
  return start + because(body.detail) + advice;
};

const DRIFTS: Record<string, string> = {
  ghost_reservation: t`nothing runs under a reservation`,
  orphan_workload: t`something runs without a reservation`,
  squatter: t`a process uses a GPU without a reservation`,
  underuse: t`a reserved GPU is hardly used`,
  stale_agent: t`the agent is silent`,
  clock_skew: t`the clock is off`,
};
const drift = (body: Body) => DRIFTS[text(body.drift)] ?? words(body.drift);

const reservation =
  (what: string | ((body: Body) => string)): Sentence =>
  (body, names) =>
    `${holder(body, names)}${by(body, names)} ${typeof what === "string" ? what : what(body)}${because(body.reason)}`;

const ofExperiment =
  (what: string | ((body: Body) => string)): Sentence =>
  (body, names) =>
    `${experiment(body, names)} ${typeof what === "string" ? what : what(body)}${because(body.reason)}`;

const ofTask =
  (what: string | ((body: Body) => string)): Sentence =>
  (body) =>
    t`The task ${typeof what === "string" ? what : what(body)}${because(body.reason)}`;

const SENTENCES: Record<string, Sentence> = {
  "telemetry.health_changed": health,
  "scheduler.device_cordoned": (body, names) =>
    t`${device(body, names)} was cordoned${because(body.reason)}`,
  "scheduler.device_uncordoned": (body, names) =>
    t`${device(body, names)} is back in service${because(body.reason)}`,
  "scheduler.device_quarantined": (body, names) =>
    t`${device(body, names)} is quarantined until nothing runs on it${because(body.reason)}`,
  "scheduler.device_freed": (body, names) =>
    t`${device(body, names)} is free${because(body.reason)}`,
  "scheduler.drift_detected": (body) => t`Drift: ${drift(body)}${because(body.detail)}`,
  "scheduler.drift_resolved": (body) => t`No longer: ${drift(body)}`,
  "scheduler.node_admitted": () => t`The node was admitted`,
  "scheduler.node_labelled": (body) => t`Labels were set: ${labels(body.labels)}`,
  "scheduler.node_removed": (body) => t`The node was removed${because(body.reason)}`,
  "scheduler.reservation_queued": reservation((body) =>
    body.position ? t`waits for GPUs at position ${count(body.position)}` : t`waits for GPUs`,
  ),
  "scheduler.reservation_granted": reservation((body) => grantWords(body)),
  "scheduler.reservation_activated": reservation((body) => t`uses its GPUs${where(body)}`),
  "scheduler.reservation_released": reservation((body) => t`gave its GPUs back${where(body)}`),
  "scheduler.reservation_cancelled": reservation(t`was cancelled`),
  "scheduler.reservation_rejected": reservation(t`was refused`),
  "scheduler.reservation_timed_out": reservation(t`waited too long`),
  "scheduler.reservation_expired": reservation(t`lost its GPUs: the lease was not renewed`),
  "scheduler.reservation_preempting": reservation(t`has to give its GPUs back`),
  "scheduler.reservation_preempted": reservation(t`was preempted`),
  "scheduler.reservation_lost": reservation(t`lost its GPUs`),
  "scheduler.reservation_found_idle": reservation(t`holds GPUs and does not use them`),
  "scheduler.reservation_found_active": reservation(t`uses its GPUs again`),
  "scheduler.reservation_made_preemptible": reservation(t`may be preempted: it is idle`),
  "scheduler.reservation_exempted": reservation(t`may stay idle for a while`),
  "orchestrator.task_accepted": ofTask(
    (body) => t`was accepted with ${count(body.experiments)} experiments`,
  ),
  "orchestrator.task_started": ofTask(t`started`),
  "orchestrator.task_paused": ofTask(t`was paused`),
  "orchestrator.task_resumed": ofTask(t`goes on`),
  "orchestrator.task_completed": ofTask(
    (body) => t`is completed: ${count(body.succeeded)} succeeded, ${count(body.failed)} failed`,
  ),
  "orchestrator.task_failed": ofTask(t`failed`),
  "orchestrator.task_cancelled": ofTask(t`was cancelled`),
  "orchestrator.experiment_waiting": ofExperiment(t`waits for GPUs`),
  "orchestrator.experiment_starting": ofExperiment(
    (body) => t`has ${deviceCount(body)} and starts`,
  ),
  "orchestrator.experiment_running": ofExperiment((body) => `runs${onExecutor(body)}`),
  "orchestrator.experiment_succeeded": ofExperiment((body) =>
    typeof body.objective_score === "number"
      ? t`succeeded with a score of ${number(body.objective_score)}`
      : t`succeeded`,
  ),
  "orchestrator.experiment_failed": ofExperiment(t`failed`),
  "orchestrator.experiment_cancelled": ofExperiment(t`was cancelled`),
  "orchestrator.experiment_retrying": ofExperiment(
    (body) => t`is tried again, attempt ${count(body.attempt_number)}`,
  ),
  "executor.attempt_started": ofExperiment((body) => t`is prepared${onExecutor(body)}`),
  "executor.attempt_phase_changed": ofExperiment((body) => t`is ${words(body.phase)}`),
  "executor.attempt_finished": ofExperiment((body) => t`ended: ${words(body.outcome)}`),
  "results.experiment_summarized": ofExperiment(t`has its GPU readings summarized`),
};

const onExecutor = ({ executor_id }: Body): string =>
  text(executor_id) ? t` on ${text(executor_id)}` : "";

function grantWords(body: Body): string {
  const what = deviceCount(body) + where(body);
  const waited = duration(count(body.waited_seconds));
  return body.waited_seconds ? t`got ${what} after ${waited}` : t`got ${what}`;
}

function labels(value: unknown): string {
  const pairs = Object.entries((value ?? {}) as Record<string, unknown>);
  return pairs.map(([key, of]) => `${key}=${text(of)}`).join(", ") || "none";
}

/** "node_labelled" of "scheduler.node_labelled", as people read it: for a filter by kind. */
export function eventKind(type: string): string {
  return words(type.slice(type.indexOf(".") + 1));
}
