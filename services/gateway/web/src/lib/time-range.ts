import { t } from "@lingui/core/macro";
/** Of charts: "30m" to now, or "START/END" in ISO 8601, as addresses have it. */
export const RANGES = ["30m", "1h", "6h", "12h", "24h", "2d", "3d", "7d"] as const;
const UNIT_WORDS: Record<string, string> = { m: "min", h: "h", d: "d" };

/** "1h" as people read it: last 1 h. */
export function rangeWords(range: string): string {
  return t`last ${range.replace(/[mhd]$/, (unit) => `\u202f${UNIT_WORDS[unit]}`)}`;
}

export const DEFAULT_RANGE = "1h";

const UNIT_MS: Record<string, number> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

export interface Span {
  startMs: number;
  endMs: number;
}

/** Of a custom range; null of a preset and of what is none. */
export function customSpan(range: string): Span | null {
  const [start, end, more] = range.split("/");
  if (!start || !end || more !== undefined) return null;
  const [startMs, endMs] = [Date.parse(start), Date.parse(end)];
  return startMs < endMs ? { startMs, endMs } : null;
}

/** Whole minutes. */
export function customRange({ startMs, endMs }: Span): string {
  return [startMs, endMs]
    .map((ms) => new Date(ms).toISOString().replace(/:\d\d\.\d+Z$/, "Z"))
    .join("/");
}

/** The moments that a range means now; an unknown one is the default. */
export function spanOf(range: string, nowMs: number): Span {
  const [, count, unit] = /^(\d+)([mhd])$/.exec(range) ?? [];
  const lengthMs = count && unit ? Number(count) * (UNIT_MS[unit] ?? 0) : 0;
  return customSpan(range) ?? { startMs: nowMs - (lengthMs || 3_600_000), endMs: nowMs };
}

/** As the API takes it; `end_at` only of what has ended, so that the newest is always there. */
export function rangeQuery(
  range: string,
  nowMs: number,
): { start_at: string; end_at: string | null } {
  const { startMs, endMs } = spanOf(range, nowMs);
  const iso = (ms: number) => new Date(ms).toISOString();
  return { start_at: iso(startMs), end_at: customSpan(range) ? iso(endMs) : null };
}
