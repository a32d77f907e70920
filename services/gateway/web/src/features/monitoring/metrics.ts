import type { SeriesMetric } from "@schemas/messages";

export interface ShownMetric {
  metric: SeriesMetric;
  title: string;
  unit: string;
  maximum?: number;
}

export const UTILIZATION: ShownMetric = {
  metric: "utilization_percent",
  title: "GPU utilization",
  unit: "%",
  maximum: 100,
};
export const MEMORY: ShownMetric = {
  metric: "memory_used_mb",
  title: "GPU memory used",
  unit: "GiB",
};
export const TEMPERATURE: ShownMetric = {
  metric: "temperature_c",
  title: "Temperature",
  unit: "°C",
};
export const POWER: ShownMetric = { metric: "power_draw_w", title: "Power draw", unit: "W" };
