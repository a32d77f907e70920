import { t } from "@lingui/core/macro";
import type { EChartsOption } from "echarts";
import { chartToken } from "@/components/chart/theme";
import { tip } from "@/components/chart/tip";
import type { Cell } from "@/lib/csv";
import { boundaryText, LOAD_UNITS } from "@/domain/levels";
import { axisName, colorOf, isFaint, labelOf, symbolOf, type Compared, type Shown } from "./charts";

/** Greatest first: what each configuration bears, as a point in the bracket that holds it. */
export function boundaryChart(compared: Compared): Shown {
  const boundaries = compared.experiments
    .flatMap((experiment) => {
      const boundary = experiment.metrics?.boundary;
      return boundary && boundary.estimate !== null
        ? [{ experiment, boundary, estimate: boundary.estimate }]
        : [];
    })
    .toSorted((a, b) => b.estimate - a.estimate);
  const unit = boundaries[0] ? LOAD_UNITS[boundaries[0].boundary.load] : "";
  const option: EChartsOption = {
    grid: { left: 8, right: 24, top: 8, bottom: 44, containLabel: true },
    tooltip: {
      trigger: "item",
      formatter: (at) => tip(...(at as unknown as { name: string }).name.split("\n")),
    },
    legend: { show: false },
    xAxis: {
      type: "value",
      scale: true,
      name: t`max load within the constraints (${unit}), with its bracket`,
      ...axisName,
    },
    yAxis: {
      type: "category",
      inverse: true,
      data: boundaries.map(({ experiment }) => labelOf(experiment, compared)),
      axisLabel: { fontSize: 11, color: chartToken("dim") },
    },
    series: [
      ...boundaries.map(({ experiment, boundary, estimate }, row) => ({
        type: "line" as const,
        silent: true,
        symbol: "none",
        lineStyle: {
          width: 6,
          color: colorOf(experiment, compared),
          opacity: isFaint(experiment, compared) ? 0.12 : 0.4,
        },
        data: [
          [boundary.low ?? 0, row],
          [boundary.high ?? estimate, row],
        ],
      })),
      {
        type: "scatter",
        name: "estimate",
        symbolSize: 10,
        data: boundaries.map(({ experiment, boundary, estimate }, row) => ({
          name: `${labelOf(experiment, compared)}\n${boundaryText(boundary)}`,
          value: [estimate, row],
          experimentId: experiment.experiment_id,
          label: {
            show: boundary.high === null,
            position: "right",
            formatter: t`or more`,
            fontSize: 11,
            color: chartToken("dim"),
            textBorderWidth: 0,
          },
          symbol: symbolOf(experiment, compared),
          itemStyle: {
            color: colorOf(experiment, compared),
            borderColor: chartToken("bg"),
            opacity: isFaint(experiment, compared) ? 0.15 : 1,
          },
        })),
      },
    ],
  };
  const rows: Cell[][] = boundaries.map(({ experiment, boundary, estimate }) => [
    experiment.ordinal,
    estimate,
    boundary.low,
    boundary.high,
    boundary.levels,
  ]);
  const columns = ["experiment", t`max load (${unit})`, t`met at`, t`missed at`, "levels"];
  return { option, table: { columns, rows } };
}
