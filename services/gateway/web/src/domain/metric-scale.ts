import type { SeriesMetric } from "@schemas/messages";

/** NVIDIA's own names, as DCGM and its exporter have them. */
export const DCGM_FIELDS: Record<SeriesMetric, string> = {
  utilization_percent: "DCGM_FI_DEV_GPU_UTIL",
  memory_used_mb: "DCGM_FI_DEV_FB_USED",
  temperature_c: "DCGM_FI_DEV_GPU_TEMP",
  power_draw_w: "DCGM_FI_DEV_POWER_USAGE",
};

const MEBIBYTES_PER_GIBIBYTE = 1024;

/** From a metric's stored unit to the one it is shown in; none where both are the same. */
export function scaleOf(metric: SeriesMetric): ((value: number) => number) | undefined {
  return metric === "memory_used_mb" ? (value) => value / MEBIBYTES_PER_GIBIBYTE : undefined;
}
