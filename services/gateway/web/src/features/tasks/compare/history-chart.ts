import { t } from "@lingui/core/macro";
import type { EChartsOption } from "echarts";
import { chartToken } from "@/components/chart/theme";
import { tip } from "@/components/chart/tip";
import { brokenBy } from "@/domain/constraints";
import { moment } from "@/lib/time";
import { number } from "@/lib/units";
import { objectiveOf } from "../task-sums";
import { isFaint, labelOf, type Compared, type Shown } from "./charts";

const MEETS = t`meets constraints`;
const MISSES = t`misses a constraint`;
const BEST_SO_FAR = t`best so far`;

export function historyChart(compared: Compared): Shown {
  const { word, unit, isSmallerBetter } = objectiveOf(compared.objective, compared.experiments);
  const ended = compared.experiments
    .flatMap((experiment) =>
      experiment.finished_at && experiment.objective_score !== null
        ? [{ experiment, at: experiment.finished_at, score: experiment.objective_score }]
        : [],
    )
    .toSorted((a, b) => a.at.localeCompare(b.at));
  let best: number | null = null;
  // What misses a constraint is never the best, however good its score.
  const bests = ended.map(({ experiment, at, score }) => {
    if (brokenBy(experiment).length === 0) {
      best =
        best === null ? score : isSmallerBetter ? Math.min(best, score) : Math.max(best, score);
    }
    return [at, best] as [string, number | null];
  });
  // Hollow, else a higher point above "best so far" looks like an error.
  const pointsOf = (isMissing: boolean) =>
    ended
      .filter(({ experiment }) => brokenBy(experiment).length > 0 === isMissing)
      .map(({ experiment, at, score }) => ({
        name: [
          labelOf(experiment, compared),
          ...brokenBy(experiment).map((text) => t`misses ${text}`),
        ].join(", "),
        value: [at, score],
        experimentId: experiment.experiment_id,
        itemStyle: { opacity: isFaint(experiment, compared) ? 0.3 : 1 },
      }));
  const missing = pointsOf(true);
  const option: EChartsOption = {
    grid: { left: 56, right: 24, top: 56, bottom: 28 },
    tooltip: {
      trigger: "item",
      formatter: (at) => {
        const { name, value } = at as unknown as { name: string; value: [string, number] };
        return tip(name || BEST_SO_FAR, `${number(value[1])} ${unit}, ${moment(value[0])}`);
      },
    },
    xAxis: { type: "time" },
    yAxis: {
      type: "value",
      scale: true,
      name: `${word} (${unit})`,
      nameTextStyle: { align: "left" },
    },
    series: [
      {
        type: "scatter",
        name: MEETS,
        color: chartToken("series-1"),
        symbolSize: 8,
        data: pointsOf(false),
      },
      ...(missing.length === 0
        ? []
        : [
            {
              type: "scatter" as const,
              name: MISSES,
              color: chartToken("bg"),
              itemStyle: {
                color: chartToken("bg"),
                borderColor: chartToken("series-2"),
                borderWidth: 1.5,
              },
              symbolSize: 8,
              data: missing,
            },
          ]),
      {
        type: "line",
        name: BEST_SO_FAR,
        color: chartToken("series-3"),
        step: "end",
        symbol: "none",
        data: bests,
      },
    ],
    legend: {
      top: 0,
      right: 0,
      selectedMode: false,
      itemHeight: 10,
      itemWidth: 10,
      textStyle: { color: chartToken("dim") },
      data: [
        { name: MEETS, icon: "circle" },
        ...(missing.length === 0 ? [] : [{ name: MISSES, icon: "circle" }]),
        { name: BEST_SO_FAR, icon: "rect" },
      ],
    },
  };
  const rows = ended.map(({ experiment, at, score }, index) => [
    experiment.ordinal,
    at,
    score,
    brokenBy(experiment).join(", "),
    bests[index]?.[1] ?? null,
  ]);
  return {
    option,
    table: {
      columns: ["experiment", t`ended at`, `${word} (${unit})`, "misses", BEST_SO_FAR],
      rows,
    },
  };
}
