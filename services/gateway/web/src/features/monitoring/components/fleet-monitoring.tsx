import { t } from "@lingui/core/macro";
import { SegmentedControl, useComputedColorScheme } from "@mantine/core";
import { useMemo } from "react";
import { Chart } from "@/components/chart/chart";
import { ChartGrid } from "@/components/chart/chart-grid";
import { chartToken } from "@/components/chart/theme";
import { Loaded } from "@/components/page";
import { DCGM_FIELDS, scaleOf } from "@/domain/metric-scale";
import { spanOf } from "@/lib/time-range";
import { useUrlState } from "@/lib/url-state";
import { useSeries, type Filters } from "../api/get-series";
import { fleetChart, nodeHeatMap } from "../fleet-charts";
import { METRICS, type ShownMetric } from "../metrics";

interface FleetMonitoringProps {
  range: string;
  filters: Filters;
  empty: string;
}

const ROW_PX = 16;
const LEAST_ROW_PX = 6;
const MOST_HEIGHT_PX = 900;
const AXES_PX = 72;

/** What most GPUs do, however many there are, and which nodes do something else. */
export function FleetMonitoring(props: FleetMonitoringProps) {
  return (
    <>
      <ChartGrid>
        {METRICS.map((shown) => (
          <Bands key={shown.metric} shown={shown} {...props} />
        ))}
      </ChartGrid>
      <HeatMap {...props} />
    </>
  );
}

function Bands({ shown, range, filters, empty }: FleetMonitoringProps & { shown: ShownMetric }) {
  const query = useSeries(shown.metric, "fleet", range, filters);
  const scheme = useComputedColorScheme("light");
  const chart = useMemo(
    () =>
      fleetChart(query.data?.fleet ?? [], {
        ...shown,
        scale: scaleOf(shown.metric),
        color: chartToken("series-1"),
        span: spanOf(range, query.dataUpdatedAt),
      }),
    // The colours are read from the page as it is drawn.
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [query.data, query.dataUpdatedAt, range, scheme, shown],
  );
  const gpus = query.data?.fleet.at(-1)?.[6];
  return (
    <Loaded query={query}>
      {() => (
        <Chart
          title={gpus === undefined ? shown.title : t`${shown.title}, ${gpus} GPUs`}
          option={chart.option}
          table={chart.table}
          field={DCGM_FIELDS[shown.metric]}
          group="monitoring"
          heightPx={240}
          empty={empty}
        />
      )}
    </Loaded>
  );
}

function HeatMap({ range, filters, empty }: FleetMonitoringProps) {
  const [chosen, setMetric] = useUrlState("heat", METRICS[0].metric);
  const shown = METRICS.find(({ metric }) => metric === chosen) ?? METRICS[0];
  const query = useSeries(shown.metric, "node", range, filters);
  const scheme = useComputedColorScheme("light");
  const nodes = query.data?.nodes;
  const chart = useMemo(
    () =>
      nodeHeatMap(
        nodes ?? [],
        { ...shown, scale: scaleOf(shown.metric) },
        { low: chartToken("track"), high: chartToken("series-1"), text: chartToken("dim") },
      ),
    // The colours are read from the page as it is drawn.
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [nodes, scheme, shown],
  );
  const count = nodes?.length ?? 0;
  const rowPx = Math.max(LEAST_ROW_PX, Math.min(ROW_PX, MOST_HEIGHT_PX / Math.max(1, count)));
  return (
    <Loaded query={query}>
      {() => (
        <Chart
          title={t`${shown.title} by node and time`}
          option={chart.option}
          table={chart.table}
          field={DCGM_FIELDS[shown.metric]}
          heightPx={Math.max(140, AXES_PX + rowPx * count)}
          empty={empty}
          choices={
            <SegmentedControl
              size="xs"
              aria-label={t`Metric of the heat map`}
              data={METRICS.map(({ metric, word }) => ({ value: metric, label: word }))}
              value={shown.metric}
              onChange={setMetric}
            />
          }
        />
      )}
    </Loaded>
  );
}
