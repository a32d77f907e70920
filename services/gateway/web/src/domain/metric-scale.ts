import type { SeriesMetric } from "@schemas/messages";

const MEBIBYTES_PER_GIBIBYTE = 1024;

/** From a metric's stored unit to the one it is shown in; none where both are the same. */
export function scaleOf(metric: SeriesMetric): ((value: number) => number) | undefined {
  return metric === "memory_used_mb" ? (value) => value / MEBIBYTES_PER_GIBIBYTE : undefined;
}
