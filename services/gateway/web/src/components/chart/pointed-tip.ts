import { t } from "@lingui/core/macro";
import type { EChartsOption, SeriesOption } from "echarts";
import type { ECharts } from "echarts/core";
import { tip } from "./tip";

/** What ECharts tells of a series under the crosshair. */
interface Pointed {
  seriesIndex: number;
  seriesName?: string;
  marker?: unknown;
  value: unknown;
  axisValueLabel?: string;
}

type Formatter = (pointed: Pointed | Pointed[], ...rest: unknown[]) => string;

export interface TipRow {
  name: string;
  marker: string;
  value: number;
  text: string;
}

/** More rows than this are a wall: the nearest to the pointer are shown. */
export const MOST_ROWS = 10;

let pointedChart: ECharts | null = null;

/** The crosshair is in all charts of a group, the words in the one under the pointer or the cursor. */
export function pointAt(chart: ECharts | null): void {
  pointedChart = chart;
}

/** The rows nearest to a value, the highest first. */
export function nearestRows(rows: TipRow[], at: number | null): TipRow[] {
  const nearest =
    at === null || rows.length <= MOST_ROWS
      ? rows
      : rows.toSorted((a, b) => Math.abs(a.value - at) - Math.abs(b.value - at));
  const shown = nearest.slice(0, MOST_ROWS);
  return rows.length <= MOST_ROWS ? shown : shown.sort((a, b) => b.value - a.value);
}

/** The words of the chart that is pointed at: its own formatter's, or a row for each nearest series. */
export function pointedTip(
  chart: ECharts,
  option: EChartsOption,
  { pointerY, isGrouped }: { pointerY: () => number | null; isGrouped: boolean },
): Formatter | undefined {
  const [tooltip] = [option.tooltip].flat() as (
    { trigger?: string; formatter?: Formatter } | undefined
  )[];
  const formatter = tooltip?.formatter;
  const isSilent = () => pointedChart !== null && pointedChart !== chart;
  if (formatter) return (pointed, ...rest) => (isSilent() ? "" : formatter(pointed, ...rest));
  const series: (SeriesOption | undefined)[] = [option.series].flat();
  if (tooltip?.trigger === "item" || !(isGrouped || series.length > MOST_ROWS)) return undefined;
  return (pointed) => {
    if (isSilent()) return "";
    const all = [pointed].flat();
    const rows = all.flatMap((of) => rowOf(of, series[of.seriesIndex]));
    const shown = nearestRows(rows, valueAt(chart, pointerY()));
    const more = rows.length - shown.length;
    return [
      tip(all[0]?.axisValueLabel ?? ""),
      ...shown.map((row) => `${row.marker}${tip(row.name)} <b>${tip(row.text)}</b>`),
      ...(more > 0 ? [tip(t`and ${more} more, further from the pointer`)] : []),
    ].join("<br>");
  };
}

function rowOf(pointed: Pointed, series: SeriesOption | undefined): TipRow[] {
  const shown = series?.tooltip as
    { show?: boolean; valueFormatter?: (value: unknown) => string } | undefined;
  const value = Number([pointed.value].flat().at(-1));
  if (!series || shown?.show === false || !Number.isFinite(value)) return [];
  return [
    {
      name: pointed.seriesName ?? "",
      marker: typeof pointed.marker === "string" ? pointed.marker : "",
      value,
      text: shown?.valueFormatter?.(value) ?? String(value),
    },
  ];
}

function valueAt(chart: ECharts, y: number | null): number | null {
  if (y === null) return null;
  const value: unknown = chart.convertFromPixel({ yAxisIndex: 0 }, y);
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
