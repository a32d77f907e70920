import { t } from "@lingui/core/macro";
import type { ComparedRow, RowKind } from "@schemas/messages";

/** Where one of these differs, the parameters alone do not explain a result. */
const CIRCUMSTANCES: RowKind[] = ["model", "engine", "version", "hardware", "load"];

export const KIND_WORDS: Record<RowKind, string> = {
  model: t`Model`,
  engine: t`Engine`,
  version: t`Version`,
  hardware: t`Hardware`,
  load: t`Load`,
  parameter: t`Parameter`,
  result: t`Result`,
  trust: t`Trust`,
};

/** Names of the rows as the gateway has them; a parameter's is its own. */
const NAMES: Record<string, string> = {
  model: t`model`,
  engine: t`engine`,
  image: t`image`,
  "image digest": t`image digest`,
  driver: t`driver`,
  "GPU model": t`GPU model`,
  "memory of a GPU": t`memory of a GPU`,
  "MIG profile": t`MIG profile`,
  "power limit": t`power limit`,
  load: t`load`,
  constraints: t`constraints`,
  "load generator": t`load generator`,
  "total throughput per GPU, max": t`total throughput per GPU, max`,
  "output throughput per GPU, mean": t`output throughput per GPU, mean`,
  "goodput per GPU, max": t`goodput per GPU, max`,
  "load within the constraints, max": t`load within the constraints, max`,
  "time to first token, mean": t`time to first token, mean`,
  "time per output token, mean": t`time per output token, mean`,
  "end-to-end latency, mean": t`end-to-end latency, mean`,
  "end-to-end latency, p99": t`end-to-end latency, p99`,
  "served requests": t`served requests`,
  "tokens per joule": t`tokens per joule`,
  "cost of a million output tokens": t`cost of a million output tokens`,
  runs: t`runs`,
  "misses constraints": t`misses constraints`,
  "why it may be off": t`why it may be off`,
};

export const rowName = ({ kind, name }: ComparedRow): string =>
  kind === "parameter" ? name : (NAMES[name] ?? name);

/** Whether a result may differ by this row, and not by the parameters alone. */
export const isCaution = ({ kind, differs }: ComparedRow): boolean =>
  differs && CIRCUMSTANCES.includes(kind);

/** What a row says of how much better the best is than another: "+12 %" of the first. */
export function changeText(row: ComparedRow, index: number): string {
  const [first, value] = [row.values[0], row.values[index]];
  if (index === 0 || !first || value === null || value === undefined) return "";
  const percent = (value / first - 1) * 100;
  return `${percent >= 0 ? "+" : "−"}${Math.abs(percent).toPrecision(2)} %`;
}
