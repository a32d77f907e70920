import { t } from "@lingui/core/macro";
import * as endpoints from "@schemas/endpoints";
import type { AuditEntry } from "@schemas/messages";
import { holderOf } from "@/domain/holder";
import { changesOf } from "./changes";

type State = Record<string, unknown>;

/** What can be done, with its words: "cordoned node gpu-07". */
const VERBS: Record<string, [label: string, done: string, of: string]> = {
  submitTask: [t`Submit a task`, t`submitted`, "task"],
  cancelTask: [t`Cancel a task`, t`cancelled`, "task"],
  pauseTask: [t`Pause a task`, t`paused`, "task"],
  resumeTask: [t`Resume a task`, t`resumed`, "task"],
  deleteTask: [t`Delete a task`, t`deleted`, "task"],
  deleteExperiment: [t`Delete an experiment`, t`deleted`, "experiment"],
  importArchive: [t`Import an archive`, t`imported`, t`an archive`],
  savePresets: [t`Save presets`, t`saved`, "presets"],
  savePreset: [t`Save a preset`, t`saved`, "preset"],
  deletePreset: [t`Delete a preset`, t`deleted`, "preset"],
  setSecret: [t`Set a secret`, t`set`, "secret"],
  removeSecret: [t`Remove a secret`, t`removed`, "secret"],
  addDataset: [t`Upload a dataset`, t`uploaded`, "dataset"],
  removeDataset: [t`Remove a dataset`, t`removed`, "dataset"],
  rotateSecretKey: [t`Rotate the key of secrets`, t`rotated`, t`the key of secrets`],
  requestReservation: [t`Reserve GPUs`, t`reserved`, "for"],
  endReservation: [t`Release GPUs`, t`released`, "reservation"],
  exemptReservation: [t`Exempt from idle rules`, t`let be idle`, "reservation"],
  cordon: [t`Cordon`, t`cordoned`, "node"],
  uncordon: [t`Uncordon`, t`put back into service`, "node"],
  drain: [t`Drain`, t`drained`, "node"],
  admitNode: [t`Admit a node`, t`admitted`, "node"],
  inviteNode: [t`Invite a server`, t`invited`, "node"],
  removeNode: [t`Remove a node`, t`removed`, "node"],
  labelNode: [t`Label a node`, t`labelled`, "node"],
  setBurst: [t`Sample faster`, t`had sampled faster`, "node"],
  setPowerLimit: [t`Limit power`, t`limited the power of`, "node"],
  startMonitoring: [t`Start monitoring`, t`started to monitor`, "node"],
  stopMonitoring: [t`Stop monitoring`, t`stopped to monitor`, "node"],
  setNamespace: [t`Set rules of a namespace`, t`set the rules of`, "namespace"],
  setMember: [t`Set a member`, t`set a member of`, "namespace"],
  removeMember: [t`Remove a member`, t`removed a member of`, "namespace"],
  createToken: [t`Create a token`, t`created`, "token"],
  revokeToken: [t`Revoke a token`, t`revoked`, "token"],
  publishEvent: [t`Publish an event`, t`published`, t`an event`],
  makeLoginLink: [t`Make a login link`, t`made`, t`a login link`],
  logOut: [t`Log out`, t`logged out`, ""],
  signOut: [t`Sign out`, t`signed out`, ""],
};

const OF_WORDS: Record<string, string> = {
  task: t`task`,
  experiment: t`experiment`,
  "an archive": t`an archive`,
  presets: t`presets`,
  preset: t`preset`,
  secret: t`secret`,
  dataset: t`dataset`,
  "the key of secrets": t`the key of secrets`,
  reservation: t`reservation`,
  node: t`node`,
  namespace: t`namespace`,
  token: t`token`,
  "an event": t`an event`,
  "a login link": t`a login link`,
};

interface Operation {
  name: string;
  method: string;
  path: RegExp;
}

const OPERATIONS: Operation[] = Object.entries(endpoints).flatMap(([name, row]) =>
  typeof row === "object" && "path" in row && name in VERBS
    ? [
        {
          name,
          method: row.method,
          path: new RegExp(`^${row.path.replaceAll(/{(\w+)}/g, "([^/]+)")}$`),
        },
      ]
    : [],
);

/** As the API calls an operation: "cordon", "label_node". */
const inApi = (name: string): string =>
  name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** For a filter by action, in the order of their words. */
export const ACTIONS: { value: string; label: string }[] = Object.entries(VERBS)
  .filter(([name]) => name !== "logOut")
  .map(([name, [label]]) => ({ value: inApi(name), label }))
  .toSorted((a, b) => a.label.localeCompare(b.label));

export interface AuditWords {
  /** "cordoned node gpu-07". */
  sentence: string;
  /** Of the page, where there is one about it. */
  place: { kind: "node" | "task" | "reservation" | "experiment"; id: string } | null;
}

/** What an entry says, in words; of a request that has none its address. */
export function auditWords(entry: AuditEntry): AuditWords {
  if (entry.kind === "sign_in") return { sentence: t`signed in`, place: null };
  if (entry.kind === "refused") {
    const times = entry.count === 1 ? t`once` : t`${entry.count} times`;
    return { sentence: t`refused ${times}, ${entry.reason}`, place: null };
  }
  if (entry.method === "NATS") return overBus(entry);
  const operation = OPERATIONS.find(
    ({ method, path }) => method === entry.method && path.test(entry.path),
  );
  if (!operation) {
    return { sentence: `${entry.method} ${entry.path.replace(endpoints.API, "")}`, place: null };
  }
  const [, done, of] = VERBS[operation.name] ?? ["", "", ""];
  const [, id = ""] = operation.path.exec(entry.path) ?? [];
  if (operation.name === "requestReservation") return ofRequest(entry);
  const name = nameOf(entry, decodeURIComponent(id));
  const gpus = operation.name.endsWith("cordon") ? cordonedGpus(entry) : "";
  return {
    sentence: [done, gpus, OF_WORDS[of] ?? of, name].filter(Boolean).join(" "),
    place: placeOf(of, decodeURIComponent(id)),
  };
}

/** "reserved 2 GPUs for marek"; "asked for" where they wait. */
function ofRequest({ after, status }: AuditEntry): AuditWords {
  const state: State = after ?? {};
  const request = (state.request ?? {}) as State;
  const gpus = Number(request.gpus ?? 0) * Number(request.nodes ?? 1);
  const isDone = status !== null && status < 400 && state.state !== "queued";
  const count = gpus === 1 ? t`1 GPU` : gpus > 0 ? t`${gpus} GPUs` : t`GPUs`;
  const name = holderOf(textOf(state.holder)).name;
  return {
    sentence: isDone
      ? name
        ? t`reserved ${count} for ${name}`
        : t`reserved ${count}`
      : name
        ? t`asked for ${count} for ${name}`
        : t`asked for ${count}`,
    place:
      typeof state.reservation_id === "string"
        ? placeOf("reservation", state.reservation_id)
        : null,
  };
}

/** A command that came over the bus: "scheduler.cordon/gpu-07". */
function overBus({ path }: AuditEntry): AuditWords {
  const [what = "", of = ""] = path.split("/");
  const words = what.slice(what.indexOf(".") + 1).replaceAll("_", " ");
  return {
    sentence: of ? t`sent ${words} of ${of} over NATS` : t`sent ${words} over NATS`,
    place: null,
  };
}

const textOf = (value: unknown): string => (typeof value === "string" ? value : "");

/** As people call it: by what it was or is, else by what its address has. */
function nameOf({ before, after }: AuditEntry, id: string): string {
  const state: State = { ...before, ...after };
  const named =
    textOf(state.task_name) || holderOf(textOf(state.holder)).name || textOf(state.name);
  return named || (/^[0-9a-f-]{36}$/.test(id) ? `…${id.slice(-8)}` : id);
}

/** "GPU …0001 of": those that a cordon was set on, or taken from. */
function cordonedGpus({ before, after }: AuditEntry): string {
  const of = (state: State | null) => Object.keys(state?.cordoned_gpus ?? {});
  const [was, is] = [new Set(of(before)), new Set(of(after))];
  const changed = [...is]
    .filter((uuid) => !was.has(uuid))
    .concat([...was].filter((uuid) => !is.has(uuid)));
  if (before?.cordon !== after?.cordon || changed.length === 0) return "";
  return changed.length === 1
    ? t`GPU …${changed[0]?.slice(-8) ?? ""} of`
    : t`${changed.length} GPUs of`;
}

function placeOf(of: string, id: string): AuditWords["place"] {
  const isShown = of === "node" || of === "task" || of === "reservation" || of === "experiment";
  return isShown && id ? { kind: of, id } : null;
}

/** What differs, with the whole of a cordon told once and by its reason. */
export function auditChanges({ before, after }: AuditEntry): string[] {
  const isOfNode = cordonOf(before) !== cordonOf(after);
  return changesOf(readable(before, isOfNode), readable(after, isOfNode));
}

const cordonOf = (state: State | null): string => JSON.stringify(state?.cordon ?? null);

function readable(state: State | null, isOfNode: boolean): State | null {
  if (state === null || !("cordon" in state || "cordoned_gpus" in state)) return state;
  const cordon = state.cordon as { reason?: string } | null | undefined;
  const { cordoned_gpus: gpus, ...others } = state;
  return {
    ...others,
    cordon: cordon ? cordon.reason || t`set` : null,
    ...(isOfNode ? {} : { cordoned_gpus: gpus }),
  };
}
