import { t } from "@lingui/core/macro";
import type {
  BenchmarkMetrics,
  Distribution,
  LevelResult,
  LoadBoundary,
  LoadKind,
} from "@schemas/messages";
import { groupBy } from "@/lib/group-by";
import { number, UNKNOWN, withUnit } from "@/lib/units";

type Loaded = Pick<LevelResult, "num_concurrency" | "arrivals">;

/** Whether requests are sent at times of their own, however many are under way. */
export const isRate = ({ arrivals }: Loaded) => Boolean(arrivals && !arrivals.startsWith("closed"));

/** Requests at once, or sent per second; of a trace those that were done. */
export function loadOf(level: Loaded & { requests_per_second?: number }): number {
  if (!level.arrivals) return level.num_concurrency;
  const rate = Number(/^[a-z]+\(([^,)]+)/.exec(level.arrivals)?.[1]);
  return Number.isFinite(rate) ? rate : (level.requests_per_second ?? NaN);
}

export const loadText = (level: Loaded) =>
  isRate(level) ? (level.arrivals ?? "") : String(loadOf(level));

/** Of an axis with these levels on it. */
export function loadAxis(levels: Loaded[]): string {
  const rates = levels.filter(isRate).length;
  if (rates === 0) return t`concurrency (requests at once)`;
  return rates === levels.length
    ? t`load (requests sent per second)`
    : t`load (requests at once, or sent per second)`;
}

export function levelName(level: Loaded & { scenario: string }): string {
  return `${level.scenario} × ${loadText(level)}`;
}

/** Whether answers come whole, as of embeddings and rerank: there are no tokens to time or count. */
export const isWhole = (level: LevelResult) => typeof level.items_per_second === "number";

/** The same of what experiments measured. */
export const areWhole = (experiments: { metrics?: BenchmarkMetrics | null }[]) =>
  experiments.some(({ metrics }) => typeof metrics?.mean_items_per_second === "number");

/** "8 inputs in each request": what a request had beside text; empty if nothing. */
export function requestText({ scenario, batch_size: count }: LevelResult): string {
  const [, width, height, images = "1"] = /^I\((\d+),(\d+)(?:,(\d+))?\)$/.exec(scenario) ?? [];
  if (width && height) return t`images in each request: ${images}, of ${width} × ${height} pixels`;
  if (scenario.startsWith("E(")) return t`inputs in each request: ${count}`;
  if (scenario.startsWith("R(")) return t`documents in each request: ${count}`;
  return "";
}

/** Half of the 95 % interval of a mean. */
export function halfInterval(distribution: Distribution | null, count: number): number | null {
  return distribution && count > 1 ? (1.96 * distribution.stddev) / Math.sqrt(count) : null;
}

export function byScenario(levels: LevelResult[]): Map<string, LevelResult[]> {
  return groupBy(
    levels.toSorted((a, b) => loadOf(a) - loadOf(b)),
    (level) => level.scenario,
  );
}

export const LOAD_UNITS: Record<LoadKind, string> = {
  concurrency: t`requests at once`,
  constant: "req/s",
  poisson: "req/s",
};

/** "93 (90 to 97)": the greatest load within the constraints, and the bracket that holds it. */
export function bracketText(boundary: LoadBoundary | null | undefined): string {
  if (!boundary) return UNKNOWN;
  if (boundary.estimate === null) return "none";
  const around =
    boundary.high === null
      ? t`or more`
      : t`(${number(boundary.low ?? 0)} to ${number(boundary.high)})`;
  return `${number(boundary.estimate)} ${around}`;
}

export function boundaryText(boundary: LoadBoundary): string {
  return boundary.estimate === null
    ? "none"
    : withUnit(bracketText(boundary), LOAD_UNITS[boundary.load]);
}

/** What is odd about where it lies. */
export function boundaryNotes(boundary: LoadBoundary | null | undefined): string[] {
  return [
    ...(boundary?.cliff ? [t`latency jumps just above it`] : []),
    ...(boundary?.non_monotone ? [t`not monotonic: a higher load met the constraints again`] : []),
  ];
}
