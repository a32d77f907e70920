import { t } from "@lingui/core/macro";
import { useComputedColorScheme } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import { useMemo } from "react";
import type { SeriesMetric, SeriesView } from "@schemas/messages";
import { DCGM_FIELDS, scaleOf } from "@/domain/metric-scale";
import { Loaded } from "@/components/page";
import { spanOf } from "@/lib/time-range";
import { seriesChart, type SeriesShown } from "./series-chart";
import { Chart } from "./chart";
import { chartToken, seriesColors } from "./theme";

interface GpuSeriesChartProps {
  query: UseQueryResult<SeriesView>;
  metric: SeriesMetric;
  title: string;
  unit: string;
  maximum?: number;
  /** Of this GPU alone; of all that the answer has without it. */
  uuid?: string;
  /** As in addresses: the axis has all of it. */
  range?: string;
  /** Of which it is a part, as the API has it: a limit, a size. */
  total?: number | null;
  bands?: SeriesShown["bands"];
  marks?: SeriesShown["marks"];
  group: string;
  heightPx: number;
  empty: string;
}

/** A metric of GPUs over time: means as lines, what they went between as bands. */
export function GpuSeriesChart(props: GpuSeriesChartProps) {
  const { query, metric, title, unit, maximum, uuid, range, group, heightPx, empty } = props;
  const { total, bands, marks } = props;
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
          totalOf: total === undefined ? undefined : () => total,
          bands,
          marks,
          bandText: chartToken("dim"),
          scale: scaleOf(metric),
          span: range === undefined ? undefined : spanOf(range, query.dataUpdatedAt),
          name: (device) => t`${device.node_id} GPU ${device.index}`,
        },
      ),
    // The colours are read from the page as it is drawn.
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [
      bands,
      marks,
      maximum,
      metric,
      query.data,
      query.dataUpdatedAt,
      range,
      scheme,
      total,
      unit,
      uuid,
    ],
  );
  return (
    <Loaded query={query}>
      {() =>
        chart && (
          <Chart
            title={title}
            option={chart.option}
            table={chart.table}
            field={DCGM_FIELDS[metric]}
            group={group}
            heightPx={heightPx}
            empty={empty}
          />
        )
      }
    </Loaded>
  );
}
