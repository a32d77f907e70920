import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { SeriesMetric } from "@schemas/messages";
import { Chart } from "@/components/chart/chart";
import { seriesOptions } from "../api/get-series";

const TOLD: Record<SeriesMetric, { title: string; unit: string }> = {
  utilization_percent: { title: "Utilization", unit: "%" },
  memory_used_mb: { title: "Memory used", unit: "MiB" },
  temperature_c: { title: "Temperature", unit: "°C" },
  power_draw_w: { title: "Power", unit: "W" },
};

interface SeriesChartProps {
  nodeId: string;
  uuid: string;
  metric: SeriesMetric;
  range: string;
}

/** The mean as a line, in the band from the least to the most. */
export function SeriesChart({ nodeId, uuid, metric, range }: SeriesChartProps) {
  const series = useQuery(seriesOptions(nodeId, uuid, metric, range));
  const { title, unit } = TOLD[metric];
  const points = useMemo(
    () => series.data?.devices.find((device) => device.device_uuid === uuid)?.points ?? [],
    [series.data, uuid],
  );
  const option = useMemo(() => {
    const band = { type: "line" as const, stack: "band", symbol: "none", silent: true };
    const hidden = { lineStyle: { opacity: 0 }, tooltip: { show: false } };
    return {
      legend: { show: false },
      xAxis: { type: "time" as const },
      yAxis: { type: "value" as const, name: `mean (${unit})`, scale: metric === "temperature_c" },
      series: [
        { ...band, ...hidden, data: points.map(([at, min]) => [at, min]) },
        {
          ...band,
          ...hidden,
          areaStyle: { opacity: 0.2 },
          data: points.map(([at, min, max]) => [at, max - min]),
        },
        {
          type: "line" as const,
          name: `mean (${unit})`,
          symbol: "none",
          data: points.map(([at, , , mean]) => [at, mean]),
        },
      ],
    };
  }, [metric, points, unit]);
  const table = useMemo(
    () => ({
      columns: ["at (UTC)", `min (${unit})`, `max (${unit})`, `mean (${unit})`],
      rows: points.map((point) => [...point]),
    }),
    [points, unit],
  );
  const empty = series.error ? series.error.message : `no reading of ${title.toLowerCase()} in ${range}`;
  return <Chart title={title} option={option} table={table} empty={empty} group="gpu" heightPx={180} />;
}
