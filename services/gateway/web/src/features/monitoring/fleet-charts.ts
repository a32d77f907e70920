import { t } from "@lingui/core/macro";
import type { EChartsOption } from "echarts";
import type { FleetPoint, NodeSeries } from "@schemas/messages";
import type { ChartTable } from "@/components/chart/chart-rows";
import { tip } from "@/components/chart/tip";
import { moment, shortMoment } from "@/lib/time";
import type { Span } from "@/lib/time-range";
import { number, withUnit } from "@/lib/units";
import type { ShownMetric } from "./metrics";

type Scale = (value: number) => number;

interface Shown extends ShownMetric {
  scale?: Scale;
  /** Of the page as it is drawn. */
  color: string;
  /** The time that was asked for. */
  span: Span;
}

interface Drawn {
  option: EChartsOption;
  table: ChartTable;
}

const LEVELS = [t`lowest`, t`10th percentile`, t`median`, t`90th percentile`, t`highest`];
const MEDIAN = 2;
const GPUS = 6;

/** What most GPUs do: the median as a line, a band of eight tenths of them, one of all around it. */
export function fleetChart(points: FleetPoint[], shown: Shown): Drawn {
  const { unit, maximum, color, span, scale = (value: number) => value } = shown;
  const at = (level: number) =>
    points.map((point): [string, number] => [point[0], scale(Number(point[level + 1]))]);
  const line = (level: number) => ({
    type: "line" as const,
    name: LEVELS[level],
    // A line of one point is none.
    symbol: points.length === 1 ? "circle" : "none",
    color,
    lineStyle: level === MEDIAN ? { width: 2 } : { width: 1, opacity: level % 4 ? 0.6 : 0.25 },
    tooltip: { valueFormatter: (value: unknown) => withUnit(number(Number(value)), unit) },
    data: at(level),
  });
  const band = (from: number, to: number, opacity: number) => {
    const common = {
      type: "line" as const,
      stack: `band ${from}`,
      stackStrategy: "all" as const,
      symbol: "none",
      silent: true,
      lineStyle: { opacity: 0 },
      tooltip: { show: false },
      color,
    };
    const [low, high] = [at(from), at(to)];
    const heights = low.map(([time, value], index) => [time, (high[index]?.[1] ?? value) - value]);
    return [
      { ...common, data: low },
      { ...common, areaStyle: { color, opacity }, data: heights },
    ];
  };
  return {
    option: {
      legend: { show: false },
      xAxis: { type: "time", min: span.startMs, max: span.endMs },
      yAxis: {
        type: "value",
        name: t`${unit}, median, 80 % of GPUs, all GPUs`,
        nameLocation: "end",
        nameTextStyle: { align: "left" },
        scale: maximum === undefined,
        ...(maximum === undefined ? {} : { min: 0, max: maximum }),
      },
      series: [...band(0, 4, 0.08), ...band(1, 3, 0.2), ...[4, 3, 2, 1, 0].map(line)],
    },
    table: {
      columns: ["time", ...LEVELS.map((level) => `${level} (${unit})`), "GPUs"],
      rows: points.map((point) => [
        point[0],
        ...LEVELS.map((_, level) => scale(Number(point[level + 1]))),
        point[GPUS],
      ]),
    },
  };
}

export interface HeatColors {
  low: string;
  high: string;
  text: string;
}

/** Each node a row, each time a column, its mean as a shade. */
export function nodeHeatMap(
  nodes: NodeSeries[],
  { unit, maximum, scale = (value: number) => value }: Omit<Shown, "color" | "span">,
  colors: HeatColors,
): Drawn {
  const times = [...new Set(nodes.flatMap((node) => node.points.map(([at]) => at)))].sort();
  const column = new Map(times.map((time, index) => [time, index]));
  // The first node on top, as in a list.
  const rows = nodes.toReversed();
  const cells = rows.flatMap((node, row) =>
    node.points.map(([time, , , mean]) => [column.get(time) ?? 0, row, scale(mean)]),
  );
  const highest = cells.reduce((most, [, , value]) => Math.max(most, value ?? 0), 0);
  return {
    option: {
      legend: { show: false },
      grid: { left: 96, right: 16, top: 8, bottom: 56 },
      xAxis: {
        type: "category",
        data: times.map((time) => shortMoment(time, Date.now())),
        splitLine: { show: false },
      },
      yAxis: {
        type: "category",
        data: rows.map((node) => node.node_id),
        splitLine: { show: false },
        axisLabel: { width: 84, overflow: "truncate", fontSize: 10 },
      },
      visualMap: {
        min: 0,
        max: maximum ?? (highest || 1),
        calculable: false,
        orient: "horizontal",
        left: "center",
        bottom: 0,
        itemHeight: 120,
        itemWidth: 10,
        text: [withUnit(number(maximum ?? highest), unit), withUnit("0", unit)],
        textStyle: { color: colors.text },
        inRange: { color: [colors.low, colors.high] },
      },
      tooltip: {
        trigger: "item",
        formatter: (pointed: unknown) => {
          const { data } = pointed as { data: [number, number, number] };
          const node = rows[data[1]];
          return tip(
            `${node?.node_id ?? ""}, ${moment(times[data[0]])}`,
            t`${withUnit(number(data[2]), unit)} of ${node?.gpus ?? 0} GPUs`,
          );
        },
      },
      series: [{ type: "heatmap", name: "nodes", data: cells, progressive: 0 }],
    },
    table: {
      columns: ["time", "node", t`mean (${unit})`],
      rows: nodes.flatMap((node) =>
        node.points.map(([time, , , mean]) => [time, node.node_id, scale(mean)]),
      ),
    },
  };
}
