import { useComputedColorScheme } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { SeriesMetric } from "@schemas/messages";
import { Chart } from "@/components/chart/chart";
import { seriesColors } from "@/components/chart/theme";
import { Loaded } from "@/components/page";
import { seriesChart } from "@/lib/series-chart";
import { seriesOptions } from "../api/get-series";

const TOLD: Record<SeriesMetric, { title: string; unit: string }> = {
  utilization_percent: { title: "Utilization", unit: "%" },
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
  const scheme = useComputedColorScheme("light");
  const { title, unit } = TOLD[metric];
  const chart = useMemo(
    () =>
      query.data &&
      seriesChart(
        { ...query.data, devices: query.data.devices.filter((device) => device.device_uuid === uuid) },
        {
          axis: `${unit}, mean with min–max`,
          unit,
          maximum: metric === "utilization_percent" ? 100 : undefined,
          colors: seriesColors(),
          scale: metric === "memory_used_mb" ? (value) => value / 1024 : undefined,
          name: (device) => `${device.node_id} GPU ${device.index}`,
        },
      ),
    // The colours are read from the page as it is drawn.
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [metric, query.data, scheme, unit, uuid],
  );
  return (
    <Loaded query={query}>
      {() =>
        chart && (
          <Chart
            title={title}
            option={chart.option}
            table={chart.table}
            empty="No reading is stored of this time: take another range."
            group="gpu"
            heightPx={200}
          />
        )
      }
    </Loaded>
  );
}
