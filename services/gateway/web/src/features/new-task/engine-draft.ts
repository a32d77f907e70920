import type { EngineChoice } from "@schemas/messages";
import { valueAt, withValue, type Draft } from "./draft";

/** The draft on another engine: what belongs to an engine alone is that engine's first task's. */
export function withEngine(draft: Draft, engine: EngineChoice): Draft {
  const changes: [path: string, value: unknown][] = [
    ["base_runtime", engine.name],
    ["deployment_mode", engine.deployment_mode],
    ["model", { id_or_path: engine.model }],
    ["parameters", engine.parameters],
    ["configurations", undefined],
    ["presets", undefined],
    ["preset_merge", undefined],
    ["runtime_image_tag", undefined],
    ["quant_config", undefined],
    ["parallel_config", undefined],
  ];
  return changes.reduce((changed, [path, value]) => withValue(changed, path, value), draft);
}

export type Row = Record<string, unknown>;

/** Values that go together, each row one configuration. */
export function rowsOf(draft: Draft): Row[] {
  const rows = valueAt(draft, "configurations");
  return Array.isArray(rows)
    ? rows.filter((row): row is Row => typeof row === "object" && row !== null)
    : [];
}

/** Without a row the file has no such field. */
export const withRows = (draft: Draft, rows: Row[]): Draft =>
  withValue(draft, "configurations", rows.length > 0 ? rows : undefined);

/** Every name that a row has, in the order of their first places. */
export const rowNames = (rows: Row[]): string[] => [...new Set(rows.flatMap(Object.keys))];

/** A row begins as the one before it: most differ in one value. */
export const withRowAdded = (rows: Row[]): Row[] => [...rows, { ...(rows.at(-1) ?? {}) }];

export const withCell = (rows: Row[], index: number, name: string, value: unknown): Row[] =>
  rows.map((row, at) => (at === index ? { ...row, [name]: value } : row));

export const withName = (rows: Row[], name: string): Row[] =>
  (rows.length > 0 ? rows : [{}]).map((row) => ({ ...row, [name]: null }));

export const withoutName = (rows: Row[], name: string): Row[] =>
  rows
    .map((row) => Object.fromEntries(Object.entries(row).filter(([other]) => other !== name)))
    .filter((row) => Object.keys(row).length > 0);
