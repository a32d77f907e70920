import { t } from "@lingui/core/macro";
import { parse, stringify } from "yaml";
import type { DatasetKind, TaskFile } from "@schemas/messages";

export type Format = "yaml" | "json";

/** A file as it is being written: any part may be missing or wrong. */
export type Draft = Record<string, unknown>;

export type Read = { draft: Draft; error: null } | { draft: null; error: string };

/** JSON is YAML too, so one reader reads both. */
export function readDraft(text: string): Read {
  let document: unknown;
  try {
    document = parse(text);
  } catch (error) {
    return { draft: null, error: error instanceof Error ? error.message : String(error) };
  }
  if (typeof document !== "object" || document === null || Array.isArray(document)) {
    return { draft: null, error: t`expected an object with task_name, model, base_runtime ...` };
  }
  return { draft: document as Draft, error: null };
}

export function writeDraft(draft: Draft, format: Format): string {
  if (format === "json") return `${JSON.stringify(draft, null, 2)}\n`;
  return stringify(draft, { flowCollectionPadding: false, lineWidth: 0 });
}

export function formatOf(text: string): Format {
  return text.trimStart().startsWith("{") ? "json" : "yaml";
}

/** By path: "optimization.max_parallel". */
export function valueAt(draft: Draft, path: string): unknown {
  return path
    .split(".")
    .reduce<unknown>((at, name) => (isObject(at) ? at[name] : undefined), draft);
}

/** The same as a text, as a field shows it: empty where there is none. */
export function textAt(draft: Draft, path: string): string {
  const value = valueAt(draft, path) ?? "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** A copy with the value at the path; undefined takes it away, and objects that it leaves empty. */
export function withValue(draft: Draft, path: string, value: unknown): Draft {
  const [name = "", ...rest] = path.split(".");
  const before = draft[name];
  const inner =
    rest.length === 0 ? value : withValue(isObject(before) ? before : {}, rest.join("."), value);
  const isEmpty =
    inner === undefined || (rest.length > 0 && isObject(inner) && Object.keys(inner).length === 0);
  const others = Object.entries(draft).filter(([other]) => other !== name);
  return isEmpty ? Object.fromEntries(others) : { ...draft, [name]: inner };
}

export const MAXIMIZE_LOAD = "maximize_load";

/** A search for the greatest load takes the place of the loads, and goes with its objective. */
export function withObjective(draft: Draft, objective: string): Draft {
  const isLoad = objective === MAXIMIZE_LOAD;
  const searched = valueAt(draft, "benchmark.load_search");
  const changes: [path: string, value: unknown][] = [
    ["optimization.objective", objective],
    ["benchmark.load_search", isLoad ? (searched ?? { max: 256 }) : undefined],
    ...(isLoad && !valueAt(draft, "optimization.constraints")
      ? ([["optimization.constraints", "ttft:p99<1s, error_rate<1%"]] satisfies [string, unknown][])
      : []),
    ...(isLoad === (searched !== undefined)
      ? []
      : ([["benchmark.num_concurrency", isLoad ? undefined : [1, 4]]] satisfies [
          string,
          unknown,
        ][])),
  ];
  return changes.reduce((changed, [path, value]) => withValue(changed, path, value), draft);
}

/** What the best is best at, first what names it. */
export function goalsOf(draft: Draft): string[] {
  const several = valueAt(draft, "optimization.objectives");
  if (Array.isArray(several) && several.length > 0) return several.map(String);
  return [textAt(draft, "optimization.objective") || "minimize_latency"];
}

/** One goal is `objective`, several are `objectives`, of which no past task knows; the first takes the loads with it. */
export function withGoals(draft: Draft, goals: string[]): Draft {
  const [first = "minimize_latency", ...others] = goals;
  const plain = withValue(withObjective(draft, first), "optimization.objectives", undefined);
  if (others.length === 0) return plain;
  const cold = withValue(
    withValue(plain, "optimization.warm_start", undefined),
    "optimization.objective",
    undefined,
  );
  return withValue(cold, "optimization.objectives", [first, ...others]);
}

/** Of conversations of one turn nobody thinks between two. */
export function withTurns(draft: Draft, turns: number | undefined): Draft {
  if (turns !== undefined && turns > 1) return withValue(draft, "benchmark.turns", turns);
  return withValue(
    withValue(draft, "benchmark.turns", undefined),
    "benchmark.think_seconds",
    undefined,
  );
}

const MADE_SCENARIOS = ["D(100,40)"];

/** The uploaded file that the load is made of; empty: none. */
export function uploadOf(draft: Draft): string {
  return textAt(draft, "benchmark.dataset.upload") || textAt(draft, "benchmark.trace.upload");
}

/** An uploaded file is sent by the scenario of its kind; without one prompts are made again. */
export function withUpload(draft: Draft, name: string, kind: DatasetKind): Draft {
  const other = kind === "dataset" ? "trace" : "dataset";
  const changes: [path: string, value: unknown][] = [
    [`benchmark.${other}`, undefined],
    [`benchmark.${kind}`, name === "" ? undefined : { upload: name }],
    ["benchmark.traffic_scenarios", name === "" ? MADE_SCENARIOS : [kind]],
  ];
  return changes.reduce((changed, [path, value]) => withValue(changed, path, value), draft);
}

function isObject(value: unknown): value is Draft {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** "1, 2, true, fp8": each a number, a boolean or null where it reads as one, else a text. */
export function valuesOf(text: string): unknown[] {
  return text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "")
    .map((part) => {
      const isNumber = /^-?(\d+\.?\d*|\.\d+)(e-?\d+)?$/i.test(part);
      return isNumber
        ? Number(part)
        : part === "true"
          ? true
          : part === "false"
            ? false
            : part === "null"
              ? null
              : part;
    });
}

/** How many configurations a grid of plain lists has, with each row of `configurations`; null where a space is not a list. */
export function gridSize(parameters: unknown, rows = 0): number | null {
  let size = Math.max(rows, 1);
  if (!isObject(parameters)) return size;
  for (const values of Object.values(parameters)) {
    if (!Array.isArray(values)) return null;
    size *= values.length;
  }
  return size;
}

/** With one key a place earlier (-1) or later (1): the last one changes first in a grid. */
export function withMoved(values: Draft, key: string, by: -1 | 1): Draft {
  const entries = Object.entries(values);
  const from = entries.findIndex(([name]) => name === key);
  const [moved, other] = [entries[from], entries[from + by]];
  if (!moved || !other) return values;
  [entries[from], entries[from + by]] = [other, moved];
  return Object.fromEntries(entries);
}

/** The part of a problem's path ("$.parameters.slots[0]") that names this field. */
export function isAbout(problemPath: string | null | undefined, field: string): boolean {
  const path = (problemPath ?? "").replace(/^\$\.?/, "").replaceAll(/\[(\d+|\.\.\.)\]/g, "");
  return path === field || path.startsWith(`${field}.`);
}

export const FIRST_DRAFT = {
  task_name: "new-task",
  deployment_mode: "process",
  model: { id_or_path: "simulated-model" },
  base_runtime: "simulated",
  parameters: { "ttft-seconds": [0.005, 0.01], "tpot-seconds": [0.001, 0.002] },
  optimization: { objective: "maximize_throughput", max_parallel: 2, timeout_per_iteration: 600 },
  benchmark: {
    traffic_scenarios: ["D(100,40)"],
    num_concurrency: [1, 4],
    max_time_per_iteration: 10,
  },
} satisfies TaskFile;

/** What of a task is worth taking over: all but its name. */
export function cloneOf(task: TaskFile): Draft {
  const fields = Object.entries(task).filter(([, value]) => value !== null && value !== "");
  return { ...Object.fromEntries(fields), task_name: `${task.task_name}-2` };
}
