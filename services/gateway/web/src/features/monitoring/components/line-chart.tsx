import { useComputedColorScheme } from "@mantine/core";
import { useMemo } from "react";
import type { SeriesMetric } from "@schemas/messages";
import { Chart } from "@/components/chart/chart";
import { chartToken, seriesColors } from "@/components/chart/theme";
import { DCGM_FIELDS, scaleOf } from "@/domain/metric-scale";
import type { Span } from "@/lib/time-range";
import { seriesChart } from "@/components/chart/series-chart";
import type { Line } from "../sums";

interface LineChartProps {
  metric: SeriesMetric;
  title: string;
  unit: string;
  maximum?: number;
  lines: Line[];
  span?: Span;
  rowNames: string[];
  empty: string;
}

/** What nodes or pods use, one line each; of one alone also how much memory there is. */
export function LineChart({
  metric,
  title,
  unit,
  maximum,
  lines,
  span,
  rowNames,
  empty,
}: LineChartProps) {
  const { startMs, endMs } = span ?? {};
  const scheme = useComputedColorScheme("light");
  const chart = useMemo(
    () =>
      seriesChart(
        { devices: lines },
        {
          unit,
          maximum,
          colors: seriesColors(),
          bandText: chartToken("dim"),
          scale: scaleOf(metric),
          span: startMs === undefined || endMs === undefined ? undefined : { startMs, endMs },
          name: (line) => line.name,
          rowNames,
          rowOf: (line) => line.names,
          totalOf: metric === "memory_used_mb" ? (line) => line.totalMb : undefined,
        },
      ),
    // The colours are read from the page as it is drawn.
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [endMs, lines, maximum, metric, rowNames, scheme, startMs, unit],
  );
  return (
    <Chart
      title={title}
      option={chart.option}
      table={chart.table}
      field={DCGM_FIELDS[metric]}
      group="monitoring"
      heightPx={260}
      empty={empty}
    />
  );
}
