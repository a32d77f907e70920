import type { SeriesMetric } from "@schemas/messages";

export interface ShownMetric {
  metric: SeriesMetric;
  title: string;
  /** Where there is room for one word. */
  word: string;
  unit: string;
  maximum?: number;
}

export const UTILIZATION: ShownMetric = {
  metric: "utilization_percent",
  title: "GPU utilization",
  word: "Utilization",
  unit: "%",
  maximum: 100,
};
export const MEMORY: ShownMetric = {
  metric: "memory_used_mb",
  title: "GPU memory used",
  word: "Memory",
  unit: "GiB",
};
export const TEMPERATURE: ShownMetric = {
  metric: "temperature_c",
  title: "Temperature",
  word: "Temperature",
  unit: "°C",
};
export const POWER: ShownMetric = {
  metric: "power_draw_w",
  title: "Power draw",
  word: "Power",
  unit: "W",
};
export const METRICS = [UTILIZATION, MEMORY, TEMPERATURE, POWER] as const;
