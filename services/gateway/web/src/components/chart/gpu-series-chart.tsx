import { useComputedColorScheme } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import { useMemo } from "react";
import type { SeriesMetric, SeriesView } from "@schemas/messages";
import { scaleOf } from "@/domain/metric-scale";
import { Loaded } from "@/components/page";
import { seriesChart } from "./series-chart";
import { Chart } from "./chart";
import { seriesColors } from "./theme";

interface GpuSeriesChartProps {
  query: UseQueryResult<SeriesView>;
  metric: SeriesMetric;
  title: string;
  unit: string;
  maximum?: number;
  /** Of this GPU alone; of all that the answer has without it. */
  uuid?: string;
  group: string;
  heightPx: number;
  empty: string;
}

/** A metric of GPUs over time: means as lines, what they went between as bands. */
export function GpuSeriesChart(props: GpuSeriesChartProps) {
  const { query, metric, title, unit, maximum, uuid, group, heightPx, empty } = props;
  const scheme = useComputedColorScheme("light");
  const chart = useMemo(
    () =>
      query.data &&
      seriesChart(
        { devices: query.data.devices.filter((device) => !uuid || device.device_uuid === uuid) },
        {
          unit,
          maximum,
          colors: seriesColors(),
          scale: scaleOf(metric),
          name: (device) => `${device.node_id} GPU ${device.index}`,
        },
      ),
    // The colours are read from the page as it is drawn.
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [maximum, metric, query.data, scheme, unit, uuid],
  );
  return (
    <Loaded query={query}>
      {() =>
        chart && (
          <Chart
            title={title}
            option={chart.option}
            table={chart.table}
            group={group}
            heightPx={heightPx}
            empty={empty}
          />
        )
      }
    </Loaded>
  );
}
