import { t } from "@lingui/core/macro";
import type { EChartsOption } from "echarts";
import type { ExperimentDetail } from "@schemas/messages";
import { chartToken } from "@/components/chart/theme";
import { tip } from "@/components/chart/tip";
import { valueText } from "@/domain/parameters";
import { noLessThan, number } from "@/lib/units";
import { objectiveOf } from "../task-sums";
import {
  axisName,
  categoriesOf,
  colorOf,
  isFaint,
  labelOf,
  symbolOf,
  type Compared,
  type Shown,
} from "./charts";
import { importances } from "./points";

export function importanceChart(compared: Compared): Shown {
  const shares = importances([...compared.runs.values()], compared.names);
  const option: EChartsOption = {
    grid: { left: 140, right: 64, top: 8, bottom: 44 },
    tooltip: { trigger: "axis", valueFormatter: (value) => `${noLessThan(0.1, Number(value))} %` },
    xAxis: {
      type: "value",
      max: 100,
      name: t`variance of the configurations' scores explained by it (%)`,
      ...axisName,
    },
    yAxis: { type: "category", inverse: true, data: shares.map(([name]) => name) },
    series: [
      {
        type: "bar",
        barMaxWidth: 16,
        label: {
          show: true,
          position: "right",
          color: chartToken("dim"),
          formatter: (at) => `${noLessThan(0.1, Number(at.value))} %`,
        },
        data: shares.map(([, share]) => share * 100),
      },
    ],
  };
  return {
    option,
    table: {
      columns: ["parameter", t`variance explained (%)`],
      rows: shares.map(([name, share]) => [name, share * 100]),
    },
  };
}

/** The score over one parameter, whatever the others were. */
export function sliceChart(compared: Compared, name: string): Shown {
  const { word, unit } = objectiveOf(compared.objective, compared.experiments);
  // Of several engines each has parameters of its own.
  const scored = compared.experiments.filter(
    ({ objective_score, parameters }) => objective_score !== null && name in parameters,
  );
  const of = (experiment: ExperimentDetail) => experiment.parameters[name];
  const isNumeric = scored.every((experiment) => typeof of(experiment) === "number");
  const cell = (experiment: ExperimentDetail) =>
    isNumeric ? (of(experiment) as number) : valueText(of(experiment));
  const categories = categoriesOf(scored.map(cell), true);
  const option: EChartsOption = {
    grid: { left: 56, right: 24, top: 32, bottom: 44 },
    tooltip: {
      trigger: "item",
      formatter: (at) => {
        const { name: of, value } = at as unknown as { name: string; value: [unknown, number] };
        return tip(of, `${number(value[1])} ${unit}`);
      },
    },
    legend: { show: false },
    xAxis: categories
      ? { type: "category", data: categories, name, ...axisName }
      : { type: "value", scale: true, boundaryGap: ["5%", "5%"], name, ...axisName },
    yAxis: {
      type: "value",
      scale: true,
      name: `${word} (${unit})`,
      nameTextStyle: { align: "left" },
    },
    series: [
      {
        type: "scatter",
        data: scored.map((experiment) => ({
          name: labelOf(experiment, compared),
          value: [
            categories ? String(cell(experiment)) : cell(experiment),
            experiment.objective_score as number,
          ],
          experimentId: experiment.experiment_id,
          symbol: symbolOf(experiment, compared),
          symbolSize: experiment.experiment_id === compared.bestId ? 13 : 8,
          itemStyle: {
            color: colorOf(experiment, compared),
            opacity: isFaint(experiment, compared) ? 0.15 : 1,
          },
        })),
      },
    ],
  };
  const rows = scored.map((experiment) => [
    experiment.ordinal,
    cell(experiment),
    experiment.objective_score,
  ]);
  return { option, table: { columns: ["experiment", name, `${word} (${unit})`], rows } };
}
