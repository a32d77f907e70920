import { t } from "@lingui/core/macro";
import type { EChartsOption } from "echarts";
import type { SeriesView } from "@schemas/messages";
import type { Cell } from "@/lib/csv";
import type { Span } from "@/lib/time-range";
import { number, withUnit } from "@/lib/units";

type Device = SeriesView["devices"][number];

export interface SeriesShown<T = Device> {
  unit: string;
  /** Of a value as the API has it; identity without one. */
  scale?: (value: number, device: T) => number;
  name: (device: T) => string;
  /** Columns of the table that say whose a row is; node and GPU without them. */
  rowNames?: string[];
  rowOf?: (device: T) => Cell[];
  /** How much there is, as the API has it: a line above one series alone. */
  totalOf?: (device: T) => number | null;
  colors: string[];
  bands?: { name: string; startMs: number; endMs: number; color: string }[];
  bandText?: string;
  maximum?: number;
  /** The time that was asked for; without it the axis has that of the bands, or of the values. */
  span?: Span;
  /** What happened at a moment: a vertical line with its name. */
  marks?: { name: string; atMs: number; color: string }[];
}

/** Of a device's series, which has nothing else said of its rows. */
const ofDevice = (series: unknown): Cell[] => {
  const { node_id, index } = series as Device;
  return [node_id, index];
};

const MOST_BANDS = 4;
/** A legend of more is pages to turn: the crosshair names them, the table has them all. */
const MOST_NAMED = 16;

/** Above the greatest value, for the names of the bands. */
function roomForNames(maximum: number | undefined) {
  if (maximum === undefined) return { boundaryGap: [0, "15%"] as [number, string] };
  return { max: maximum * 1.15, interval: maximum / 5, axisLabel: { showMaxLabel: false } };
}

type MarkedLines = Pick<SeriesShown, "unit" | "bandText" | "marks">;

/** How much there is, drawn over a single series, so that what is used can be held against it; and
 * what happened, over the first one.
 */
function markLines(
  total: number | null,
  isFirst: boolean,
  { unit, bandText, marks = [] }: MarkedLines,
) {
  const label = { color: bandText, textBorderWidth: 0, fontSize: 10 };
  const totals =
    total === null
      ? []
      : [
          {
            yAxis: total,
            label: {
              ...label,
              position: "insideEndBottom" as const,
              formatter: `of ${withUnit(number(total), unit)}`,
            },
          },
        ];
  const moments = isFirst
    ? marks.map(({ name, atMs, color }) => ({
        xAxis: atMs,
        lineStyle: { color, type: "solid" as const },
        label: { ...label, color, formatter: name, position: "insideEndTop" as const },
      }))
    : [];
  if (totals.length + moments.length === 0) return {};
  return {
    markLine: {
      silent: true,
      symbol: "none",
      lineStyle: { type: "dashed" as const },
      data: [...totals, ...moments],
    },
  };
}

const CHARACTER_PX = 6; // of the names of bands, on average
const LEAST_CHARACTERS = 3;

/** As much of a name as a band of this width has room for; nothing where that says too little. */
export function fittingName(name: string, widthPx: number): string {
  const count = Math.floor(widthPx / CHARACTER_PX);
  if (name.length <= count) return name;
  return count < LEAST_CHARACTERS ? "" : `${name.slice(0, count - 1)}…`;
}

/** Mean of each bucket as a line, its min and max as a band around it. */
export function seriesChart<T extends Pick<Device, "points"> = Device>(
  view: { devices: T[] },
  shown: SeriesShown<T>,
) {
  const { scale = (value: number) => value, colors, name } = shown;
  // Bands of many devices lie over each other and hide all of them.
  const many = view.devices.length > MOST_BANDS;
  const [only] = view.devices.length === 1 ? view.devices : [];
  const totalOfOnly = only && shown.totalOf?.(only);
  const total =
    only && totalOfOnly !== null && totalOfOnly !== undefined ? scale(totalOfOnly, only) : null;
  const hasBands = shown.bands !== undefined && shown.bands.length > 0;
  const lines = view.devices.flatMap((device, index) => {
    const color = colors[index % colors.length] ?? "";
    const points = device.points.map(([at, min, max, mean]) => ({
      at,
      min: scale(min, device),
      max: scale(max, device),
      mean: scale(mean, device),
    }));
    const band = {
      type: "line" as const,
      stack: `band-${index}`,
      stackStrategy: "all" as const,
      symbol: "none",
      silent: true,
      lineStyle: { opacity: 0 },
      tooltip: { show: false },
    };
    return [
      ...(many
        ? []
        : [
            { ...band, name: name(device), color, data: points.map((p) => [p.at, p.min]) },
            {
              ...band,
              name: name(device),
              color,
              areaStyle: { color, opacity: 0.16 },
              data: points.map((p) => [p.at, p.max - p.min]),
            },
          ]),
      {
        type: "line" as const,
        name: name(device),
        color,
        symbol: "none",
        lineStyle: { width: many ? 1 : 1.6 },
        tooltip: {
          valueFormatter: (value: unknown) => withUnit(number(Number(value)), shown.unit),
        },
        data: points.map((p) => [p.at, p.mean]),
        ...markLines(total, index === 0, shown),
      },
    ];
  });
  if (lines.length > 0 && shown.bands?.length) {
    Object.assign(lines[lines.length - 1] as object, {
      markArea: {
        silent: true,
        label: { fontSize: 10, position: "insideTop", color: shown.bandText, textBorderWidth: 0 },
        data: shown.bands.map((band) => [
          { name: band.name, xAxis: band.startMs, itemStyle: { color: band.color, opacity: 0.1 } },
          { xAxis: band.endMs },
        ]),
      },
    });
  }
  const isNamed = view.devices.length > 1 && view.devices.length <= MOST_NAMED;
  const option: EChartsOption = {
    ...(isNamed ? {} : { legend: { show: false } }),
    grid: { left: 56, right: 16, top: isNamed ? 52 : 28, bottom: 28 },
    // Charts of one run have one axis, whenever their first and last values came.
    xAxis: {
      type: "time",
      min: shown.span?.startMs ?? shown.bands?.[0]?.startMs,
      max: shown.span?.endMs ?? shown.bands?.at(-1)?.endMs,
    },
    yAxis: {
      type: "value",
      name: many ? t`${shown.unit}, mean` : t`${shown.unit}, mean with min–max`,
      nameLocation: "end",
      nameTextStyle: { align: "left" },
      scale: shown.maximum === undefined && total === null,
      // The line above has the total as its label.
      ...(total === null ? {} : { min: 0, max: total, axisLabel: { showMaxLabel: false } }),
      ...(shown.maximum === undefined ? {} : { min: 0, max: shown.maximum }),
      ...(hasBands ? roomForNames(shown.maximum) : {}),
    },
    series: lines,
  };
  const rows: Cell[][] = view.devices.flatMap((device) =>
    device.points.map(([at, min, max, mean]) => [
      at,
      ...(shown.rowOf ?? ofDevice)(device),
      ...[mean, min, max].map((value) => scale(value, device)),
    ]),
  );
  const columns = [
    "time",
    ...(shown.rowNames ?? ["node", "GPU"]),
    ...["mean", "min", "max"].map((statistic) => `${statistic} (${shown.unit})`),
  ];
  return { option, table: { columns, rows } };
}
