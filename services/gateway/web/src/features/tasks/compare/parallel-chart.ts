import { t } from "@lingui/core/macro";
import { areWhole } from "@/domain/levels";
import type { EChartsOption } from "echarts";
import type { ExperimentDetail } from "@schemas/messages";
import { chartToken } from "@/components/chart/theme";
import { tip } from "@/components/chart/tip";
import { valueText } from "@/domain/parameters";
import { number, UNKNOWN } from "@/lib/units";
import { objectiveOf } from "../task-sums";
import {
  categoriesOf,
  colorOf,
  inLines,
  isFaint,
  labelOf,
  type Compared,
  type Shown,
} from "./charts";

const cellText = (cell: number | string | undefined) =>
  typeof cell === "number" ? number(cell) : (cell ?? "");

export function parallelChart(compared: Compared): Shown {
  const { experiments, names, bestId, objective } = compared;
  const { word, unit } = objectiveOf(objective, experiments);
  const scored = experiments.filter((experiment) => experiment.metrics);
  const axes = [
    ...names.map((name) => ({
      name,
      of: (experiment: ExperimentDetail) => experiment.parameters[name],
    })),
    ...(areWhole(scored)
      ? []
      : [
          {
            name: t`ttft, mean (ms)`,
            of: (experiment: ExperimentDetail) => (experiment.metrics?.mean_ttft ?? NaN) * 1000,
          },
          {
            name: t`tpot, mean (ms)`,
            of: (experiment: ExperimentDetail) => (experiment.metrics?.mean_tpot ?? NaN) * 1000,
          },
        ]),
    { name: `${word} (${unit})`, of: (experiment: ExperimentDetail) => experiment.objective_score },
  ];
  const isNumeric = axes.map(({ of }) =>
    scored.every((experiment) => typeof of(experiment) === "number"),
  );
  const cell = (experiment: ExperimentDetail, index: number): number | string => {
    const value = axes[index]?.of(experiment);
    if (isNumeric[index]) return value as number;
    return value === undefined ? UNKNOWN : valueText(value); // of another engine
  };
  const categories = axes.map((_, index) =>
    categoriesOf(
      scored.map((experiment) => cell(experiment, index)),
      index < names.length,
    ),
  );
  const option: EChartsOption = {
    grid: undefined,
    tooltip: {
      trigger: "item",
      formatter: (at) => {
        const { name, value } = at as unknown as { name: string; value: (number | string)[] };
        return tip(name, ...axes.map((axis, index) => `${axis.name}: ${cellText(value[index])}`));
      },
    },
    legend: { show: false },
    parallel: { left: 56, right: 96, top: 52, bottom: 20 },
    parallelAxis: axes.map(({ name }, dim) => ({
      dim,
      z: 10,
      name: inLines(name),
      nameTextStyle: { fontSize: 11, lineHeight: 14 },
      // Lines lie behind it, and many meet where it is.
      axisLabel: {
        fontSize: 11,
        color: chartToken("text"),
        textBorderColor: chartToken("bg"),
        textBorderWidth: 3,
      },
      ...(categories[dim]
        ? { type: "category" as const, boundaryGap: false, data: categories[dim] }
        : { type: "value" as const, scale: true }),
    })),
    // On a phone its axes lie below each other: their names would have no room side by side.
    media: [
      {
        query: { maxWidth: 480 },
        option: {
          parallel: { layout: "vertical", left: 112, right: 24, top: 16, bottom: 24 },
          parallelAxis: axes.map(({ name }, dim) => ({
            dim,
            name: inLines(name, 8),
            nameLocation: "start",
            nameGap: 8,
          })),
        },
      },
    ],
    series: [
      {
        type: "parallel",
        smooth: false,
        data: scored.map((experiment) => ({
          name: labelOf(experiment, compared),
          experimentId: experiment.experiment_id,
          value: axes.map((_, index) =>
            categories[index] ? String(cell(experiment, index)) : cell(experiment, index),
          ),
          lineStyle: {
            color: colorOf(experiment, compared),
            width: experiment.experiment_id === bestId ? 4 : 1.6,
            opacity: isFaint(experiment, compared) ? 0.1 : 0.85,
          },
        })),
      },
    ],
  };
  const rows = scored.map((experiment) => [
    experiment.ordinal,
    ...axes.map((_, index) => cell(experiment, index)),
  ]);
  return { option, table: { columns: ["experiment", ...axes.map((axis) => axis.name)], rows } };
}
