import { t } from "@lingui/core/macro";
import type { Distribution, ExperimentDetail, LevelResult, SloSpec } from "@schemas/messages";
import { groupBy } from "@/lib/group-by";
import { halfInterval, levelName } from "@/domain/levels";
import { number } from "@/lib/units";

/** One level of one experiment, as an expert compares them. */
export interface LevelPoint {
  experiment: ExperimentDetail;
  level: LevelResult;
  /** Output tokens per second and GPU, mean of the level. */
  perGpu: number;
  /** Output tokens per second of one request, mean over requests. */
  perUser: number;
}

export function levelPoints(experiments: ExperimentDetail[]): LevelPoint[] {
  return experiments.flatMap((experiment) => {
    const gpus = experiment.gpu_info?.count || experiment.request.gpus || 1;
    const failed = new Set(experiment.metrics?.failed_levels.map(levelName));
    return (experiment.benchmark?.levels ?? []).flatMap((level) => {
      const perUser = level.stats.output_inference_speed?.mean;
      if (perUser === undefined || failed.has(levelName(level))) return [];
      const perGpu = (level.mean_output_throughput_tokens_per_s ?? 0) / gpus;
      return [{ experiment: experiment, level, perGpu, perUser }];
    });
  });
}

/** Those that no other beats in both, by rising tokens per user. */
export function paretoFront(points: LevelPoint[]): LevelPoint[] {
  const front: LevelPoint[] = [];
  let most = -Infinity;
  for (const point of points.toSorted((a, b) => b.perUser - a.perUser || b.perGpu - a.perGpu)) {
    if (point.perGpu > most) {
      front.push(point);
      most = point.perGpu;
    }
  }
  return front.reverse();
}

export type LatencyName = "e2e_latency" | "ttft" | "tpot";
export type Statistic = "mean" | "p50" | "p90" | "p95" | "p99";

/** The bound in seconds that a task set on this statistic; a bound on ttft or tpot is on its mean. */
export function sloBound(
  slo: SloSpec | null | undefined,
  name: LatencyName,
  statistic: Statistic,
): number | null {
  if (name !== "e2e_latency") return statistic === "mean" ? (slo?.[name]?.threshold ?? null) : null;
  return statistic === "mean" ? null : (slo?.latency?.[statistic]?.threshold ?? null);
}

const BOUNDED: [LatencyName, Statistic][] = [
  ["ttft", "mean"],
  ["tpot", "mean"],
  ...(["p50", "p90", "p95", "p99"] as const).map((statistic): [LatencyName, Statistic] => [
    "e2e_latency",
    statistic,
  ]),
];

/** What a task's SLO asks for, in words; empty where it asks for nothing. */
export function sloWords(slo: SloSpec | null | undefined, constraints: string): string {
  const bounds = BOUNDED.flatMap(([name, statistic]) => {
    const bound = sloBound(slo, name, statistic);
    const word = name === "e2e_latency" ? `e2e ${statistic}` : name;
    return bound === null ? [] : [`${word} ≤ ${number(bound * 1000)} ms`];
  });
  return [...bounds, ...constraints.split(",").map((text) => text.trim())]
    .filter(Boolean)
    .join(", ");
}

/** A level keeps the SLO if its own times do; constraints, which hold at every load, its whole experiment. */
export function isWithinSlo(
  level: LevelResult,
  experiment: ExperimentDetail,
  slo: SloSpec | null | undefined,
): boolean {
  const keepsBounds = BOUNDED.every(([name, statistic]) => {
    const bound = sloBound(slo, name, statistic);
    const value = level.stats[name]?.[statistic];
    return bound === null || (value !== undefined && value <= bound);
  });
  return keepsBounds && (experiment.slo?.constraints ?? []).every((text) => text.excess === 0);
}

/** The load with the most throughput for its latency (Kleinrock's power). */
export function knee(levels: LevelResult[], name: LatencyName): LevelResult | null {
  const power = (level: LevelResult) =>
    level.requests_per_second / (level.stats[name]?.mean || Infinity);
  const best = levels.toSorted((a, b) => power(b) - power(a))[0];
  return levels.length > 2 ? (best ?? null) : null;
}

/** Whether two means lie within each other's noise; null where it is not known. */
export function isSame(
  one: Distribution,
  n: number,
  other: Distribution,
  m: number,
): boolean | null {
  const [a, b] = [halfInterval(one, n), halfInterval(other, m)];
  if (a === null || b === null) return null;
  return Math.abs(one.mean - other.mean) <= Math.hypot(a, b);
}

/** In the place of a parameter: what none of them alone explains. */
const TOGETHER = t`together, or by chance`;

/**
 * Share of the variance of the configurations' mean scores that each parameter alone explains, greatest first, then the rest. Where
 * parameters were varied together they would explain more than all, and are scaled down: the shares add up to 1.
 */
export function importances(
  configurations: ExperimentDetail[][],
  names: string[],
): [name: string, share: number][] {
  const scored = configurations.flatMap((runs) => {
    const scores = runs.flatMap((experiment) => experiment.objective_score ?? []);
    return runs[0] && scores.length > 0
      ? [{ parameters: runs[0].parameters, score: average(scores) }]
      : [];
  });
  const mean = average(scored.map((text) => text.score));
  const total = scored.reduce((sum, text) => sum + (text.score - mean) ** 2, 0);
  if (scored.length < 3 || total === 0) return [];
  const alone = names
    .map((name): [string, number] => {
      const groups = groupBy(scored, (text) => JSON.stringify(text.parameters[name] ?? null));
      const between = [...groups.values()].reduce(
        (sum, group) => sum + group.length * (average(group.map((text) => text.score)) - mean) ** 2,
        0,
      );
      return [name, between / total];
    })
    .sort((a, b) => b[1] - a[1]);
  const explained = alone.reduce((sum, [, share]) => sum + share, 0);
  if (explained > 1) return alone.map(([name, share]) => [name, share / explained]);
  return explained > 1 - 1e-9 || alone.length === 0 ? alone : [...alone, [TOGETHER, 1 - explained]];
}

function average(values: number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
}

/** At most `most` steps of a cumulative distribution: value, share of values not above it. */
export function cumulative(
  values: (number | null)[],
  most = 400,
): [value: number, share: number][] {
  const sorted = values.flatMap((value) => value ?? []).sort((a, b) => a - b);
  const step = Math.max(1, Math.ceil(sorted.length / most));
  return sorted.flatMap((value, index): [number, number][] =>
    index % step === 0 || index === sorted.length - 1 ? [[value, (index + 1) / sorted.length]] : [],
  );
}
