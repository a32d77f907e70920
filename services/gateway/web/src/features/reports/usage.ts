import { t } from "@lingui/core/macro";
import type { GpuTime, UsageDay, UsageLine, UsageView } from "@schemas/messages";

/** What the lines of the usage report may be by. */
export const BY_WORDS: Record<string, string> = {
  namespace: t`namespace`,
  person: t`person`,
  requester: t`requester's label`,
  model: t`model`,
  node: t`node`,
  pod: t`pod`,
  owner: t`owner of pods`,
  kind: t`GPU type`,
};

const HOUR_US = 3600e6;

export interface Part {
  name: string;
  hours: number;
  share: number;
  series: number;
}

/** What became of all GPU time: the parts add up to the GPUs' wall time. */
export function partsOf(total: GpuTime): Part[] {
  const parts: [string, number, number][] = [
    [t`used`, total.used_us, 3],
    [t`held and idle`, total.idle_us, 2],
    [t`free`, total.free_us, 8],
    [t`cordoned`, total.cordoned_us, 7],
    [t`unknown`, total.unknown_us, 5],
  ];
  const sum = parts.reduce((all, [, us]) => all + us, 0);
  return parts.map(([name, us, series]) => ({
    name,
    hours: us / HOUR_US,
    share: sum > 0 ? us / sum : 0,
    series,
  }));
}

const nameless = (name: string): UsageLine => ({
  name,
  gpu_hours: 0,
  used_hours: 0,
  idle_hours: 0,
  unknown_hours: 0,
  energy_wh: 0,
  cost: null,
  previous_gpu_hours: 0,
  gpu_limit: null,
  limit_percent: null,
});

/** All lines as one; the cost is of those whose model has a price. */
export function totalOf(lines: UsageLine[], name: string): UsageLine {
  return lines.reduce(
    (sum, line) => ({
      ...sum,
      gpu_hours: sum.gpu_hours + line.gpu_hours,
      used_hours: sum.used_hours + line.used_hours,
      idle_hours: sum.idle_hours + line.idle_hours,
      unknown_hours: sum.unknown_hours + line.unknown_hours,
      energy_wh: sum.energy_wh + line.energy_wh,
      cost: line.cost === null ? sum.cost : (sum.cost ?? 0) + line.cost,
      previous_gpu_hours: sum.previous_gpu_hours + line.previous_gpu_hours,
    }),
    nameless(name),
  );
}

/** The names of days, those with the most hours first, each with its hours by day. */
export function seriesByDay(days: UsageDay[], others: string): { name: string; hours: number[] }[] {
  const names = [...new Set(days.flatMap(({ gpu_hours: of }) => Object.keys(of)))];
  const series = names.map((name) => ({
    name,
    hours: days.map(({ gpu_hours: of }) => of[name] ?? 0),
  }));
  const sum = (hours: number[]) => hours.reduce((all, value) => all + value, 0);
  series.sort((a, b) => sum(b.hours) - sum(a.hours));
  const rest = days.map(({ other_hours: hours }) => hours);
  return sum(rest) > 0 ? [...series, { name: others, hours: rest }] : series;
}

const HOUR_MS = 3600_000;

/** How many GPUs a line held on average, from the start of the report until now. */
export function meanOf(
  { gpu_hours: hours }: UsageLine,
  view: UsageView,
  nowMs = Date.now(),
): number {
  const start = Date.parse(view.start_at);
  const end = Math.min(Date.parse(view.end_at), nowMs);
  return end > start ? (hours * HOUR_MS) / (end - start) : 0;
}
