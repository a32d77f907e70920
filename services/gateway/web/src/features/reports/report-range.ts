const DAYS = { "1d": 1, "7d": 7, "30d": 30, "90d": 90 } as const;

export type ReportRange = keyof typeof DAYS;

export const REPORT_RANGES = Object.keys(DAYS) as ReportRange[];

function isReportRange(text: string): text is ReportRange {
  return text in DAYS;
}

/** To the hour, so that a page asks twice for the same. */
export function startOf(range: string, nowMs: number): string {
  const days = isReportRange(range) ? DAYS[range] : DAYS["7d"];
  const hour = 3600_000;
  return new Date(Math.floor(nowMs / hour) * hour - days * 24 * hour).toISOString();
}
