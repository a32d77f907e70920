import type { EChartsOption } from "echarts";
import { chartToken } from "@/components/chart/theme";
import { tip } from "@/components/chart/tip";
import type { Cell } from "@/lib/csv";
import { boundaryText, LOAD_UNITS } from "@/lib/levels";
import { axisName, colorOf, isFaint, labelOf, type Compared, type Shown } from "./charts";

/** Greatest first: what each configuration bears, as a point in the bracket that holds it. */
export function boundaryChart(compared: Compared): Shown {
  const found = compared.experiments
    .flatMap((each) => {
      const boundary = each.metrics?.boundary;
      return boundary && boundary.estimate !== null ? [{ each, boundary, estimate: boundary.estimate }] : [];
    })
    .toSorted((a, b) => b.estimate - a.estimate);
  const unit = found[0] ? LOAD_UNITS[found[0].boundary.load] : "";
  const option: EChartsOption = {
    grid: { left: 8, right: 24, top: 8, bottom: 44, containLabel: true },
    tooltip: { trigger: "item", formatter: (at) => tip(...(at as unknown as { name: string }).name.split("\n")) },
    legend: { show: false },
    xAxis: { type: "value", scale: true, name: `greatest load within the constraints (${unit}), with its bracket`, ...axisName },
    yAxis: { type: "category", inverse: true, data: found.map(({ each }) => labelOf(each, compared)), axisLabel: { fontSize: 11, color: chartToken("dim") } },
    series: [
      ...found.map(({ each, boundary, estimate }, row) => ({
        type: "line" as const,
        silent: true,
        symbol: "none",
        lineStyle: { width: 6, color: colorOf(each), opacity: isFaint(each, compared) ? 0.12 : 0.4 },
        data: [
          [boundary.low ?? 0, row],
          [boundary.high ?? estimate, row],
        ],
      })),
      {
        type: "scatter",
        name: "estimate",
        symbolSize: 10,
        data: found.map(({ each, boundary, estimate }, row) => ({
          name: `${labelOf(each, compared)}\n${boundaryText(boundary)}`,
          value: [estimate, row],
          experimentId: each.experiment_id,
          label: { show: boundary.high === null, position: "right", formatter: "or more", fontSize: 11, color: chartToken("dim"), textBorderWidth: 0 },
          symbol: each.experiment_id === compared.bestId ? "diamond" : "circle",
          itemStyle: { color: colorOf(each), borderColor: chartToken("bg"), opacity: isFaint(each, compared) ? 0.15 : 1 },
        })),
      },
    ],
  };
  const rows: Cell[][] = found.map(({ each, boundary, estimate }) => [each.ordinal, estimate, boundary.low, boundary.high, boundary.levels]);
  const columns = ["experiment", `greatest load (${unit})`, "met at", "missed at", "levels"];
  return { option, table: { columns, rows } };
}
