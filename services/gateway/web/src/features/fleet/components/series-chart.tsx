import { useQuery } from "@tanstack/react-query";
import type { SeriesMetric } from "@schemas/messages";
import { GpuSeriesChart } from "@/components/chart/gpu-series-chart";
import { seriesOptions } from "../api/get-series";

const CHART_OPTIONS: Record<SeriesMetric, { title: string; unit: string; maximum?: number }> = {
  utilization_percent: { title: "Utilization", unit: "%", maximum: 100 },
  memory_used_mb: { title: "Memory used", unit: "GiB" },
  temperature_c: { title: "Temperature", unit: "°C" },
  power_draw_w: { title: "Power", unit: "W" },
};

interface SeriesChartProps {
  nodeId: string;
  uuid: string;
  metric: SeriesMetric;
  range: string;
}

export function SeriesChart({ nodeId, uuid, metric, range }: SeriesChartProps) {
  const query = useQuery(seriesOptions(nodeId, uuid, metric, range));
  return (
    <GpuSeriesChart
      {...CHART_OPTIONS[metric]}
      query={query}
      metric={metric}
      uuid={uuid}
      group="gpu"
      heightPx={200}
      empty="No readings in this time range."
    />
  );
}
