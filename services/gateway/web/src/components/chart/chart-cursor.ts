import type { EChartsOption, SeriesOption } from "echarts";
import type { ECharts } from "echarts/core";

/** Of a chart: its series, and the point of that, as it gave them. */
export interface ChartPlace {
  series: number;
  point: number;
}

/** Of the tooltip, where the cursor's words are read. */
export const TIP_CLASS = "chart-tip";
const LEAP = 0.1;

/** How many points a cursor visits in each series; none in what cannot be pointed at. */
export function countPoints(option: EChartsOption, hidden: ReadonlySet<string>): number[] {
  const series = Array.isArray(option.series) ? option.series : [];
  return series.map((line: SeriesOption & { tooltip?: { show?: boolean }; data?: unknown }) => {
    const isClosed = line.silent || line.tooltip?.show === false || hidden.has(String(line.name));
    return isClosed || !Array.isArray(line.data) ? 0 : line.data.length;
  });
}

/** Where a key leads: along a series, or to the next one; null for any other key. From nowhere, to the first point. */
export function movedPlace(
  counts: number[],
  at: ChartPlace | null,
  key: string,
): ChartPlace | null {
  const open = counts.flatMap((count, series) => (count > 0 ? [series] : []));
  const [first] = open;
  if (first === undefined) return null;
  const from = at && (counts[at.series] ?? 0) > 0 ? at : null;
  const series = from?.series ?? first;
  const count = counts[series] ?? 0;
  const point = from?.point ?? 0;
  const leap = Math.max(1, Math.round(count * LEAP));
  const along = (to: number) => ({
    series,
    point: Math.min(count - 1, Math.max(0, from ? to : 0)),
  });
  const beside = (step: number) => {
    const to = from ? (open[open.indexOf(series) + step] ?? series) : series;
    return { series: to, point: Math.min((counts[to] ?? 1) - 1, point) };
  };
  switch (key) {
    case "ArrowLeft":
      return along(point - 1);
    case "ArrowRight":
      return along(point + 1);
    case "PageUp":
      return along(point - leap);
    case "PageDown":
      return along(point + leap);
    case "Home":
      return along(0);
    case "End":
      return along(count - 1);
    case "ArrowUp":
      return beside(-1);
    case "ArrowDown":
      return beside(1);
    default:
      return null;
  }
}

/** Series that the legend has switched off. */
export function hiddenIn(chart: ECharts): ReadonlySet<string> {
  const { legend } = chart.getOption() as { legend?: { selected?: Record<string, boolean> }[] };
  const selected = Object.entries(legend?.[0]?.selected ?? {});
  return new Set(selected.flatMap(([name, isShown]) => (isShown ? [] : [name])));
}

/** Shows a point as if the mouse were on it. */
export function showPlace(
  chart: ECharts,
  option: EChartsOption,
  { series, point }: ChartPlace,
): void {
  chart.dispatchAction({ type: "downplay" });
  chart.dispatchAction({ type: "highlight", seriesIndex: series, dataIndex: point });
  chart.dispatchAction(
    lineTip(chart, option, { series, point }) ?? {
      type: "showTip",
      seriesIndex: series,
      dataIndex: point,
    },
  );
}

/** A line over parallel axes has no one point: its words stand above it. */
function lineTip(chart: ECharts, option: EChartsOption, { series, point }: ChartPlace) {
  const line = Array.isArray(option.series) ? option.series[series] : undefined;
  const { formatter } = (option.tooltip ?? {}) as { formatter?: (of: unknown) => string };
  if (line?.type !== "parallel" || !formatter) return null;
  const item = Array.isArray(line.data) ? line.data[point] : undefined;
  return {
    type: "showTip",
    x: chart.getWidth() / 2,
    y: 0,
    tooltip: { formatter: formatter(item) },
  };
}

export function hidePlace(chart: ECharts): void {
  chart.dispatchAction({ type: "downplay" });
  chart.dispatchAction({ type: "hideTip" });
}

/** The words of the tooltip that is shown, in one line. */
export function tipText(chart: ECharts): string {
  const tip = chart.getDom().querySelector<HTMLElement>(`.${TIP_CLASS}`);
  return (tip?.innerText ?? "")
    .split(/\s*\n\s*/)
    .filter(Boolean)
    .join(", ");
}
