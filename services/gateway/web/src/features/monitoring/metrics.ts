import { t } from "@lingui/core/macro";
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
  title: t`GPU utilization`,
  word: t`Utilization`,
  unit: "%",
  maximum: 100,
};
export const MEMORY: ShownMetric = {
  metric: "memory_used_mb",
  title: t`GPU memory used`,
  word: t`Memory`,
  unit: "GiB",
};
export const TEMPERATURE: ShownMetric = {
  metric: "temperature_c",
  title: t`Temperature`,
  word: t`Temperature`,
  unit: "°C",
};
export const POWER: ShownMetric = {
  metric: "power_draw_w",
  title: t`Power draw`,
  word: t`Power`,
  unit: "W",
};
export const METRICS = [UTILIZATION, MEMORY, TEMPERATURE, POWER] as const;
