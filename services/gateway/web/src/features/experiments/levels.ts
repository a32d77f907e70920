import type { BenchmarkResult, Distribution, LevelResult } from "@schemas/messages";
import { groupBy } from "@/lib/group-by";

/** Half of the 95 % interval of a mean. */
export function halfInterval(of: Distribution | null, count: number): number | null {
  return of && count > 1 ? (1.96 * of.stddev) / Math.sqrt(count) : null;
}

export function levelName(level: LevelResult): string {
  return `${level.scenario} × ${level.num_concurrency}`;
}

export function byScenario(benchmark: BenchmarkResult): Map<string, LevelResult[]> {
  return groupBy(
    benchmark.levels.toSorted((a, b) => a.num_concurrency - b.num_concurrency),
    (level) => level.scenario,
  );
}
