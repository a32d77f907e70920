import { t } from "@lingui/core/macro";
import type { EChartsOption, LabelLayoutOptionCallback, SeriesOption } from "echarts";
import { chartToken } from "@/components/chart/theme";
import { tip } from "@/components/chart/tip";
import { levelName, loadText } from "@/domain/levels";
import { number } from "@/lib/units";
import {
  axisName,
  colorOf,
  isFaint,
  labelOf,
  ringed,
  symbolOf,
  type Compared,
  type Shown,
} from "./charts";
import { labelPlaces } from "./label-places";
import { isWithinSlo, levelPoints, paretoFront, sloWords, type LevelPoint } from "./points";

const LABEL_PX = 14;
/** Of a label without room; the tooltip has its words. */
const OUTSIDE = t`outside the SLO`;
const OUT_OF_SIGHT = { x: -1000 };

export function paretoChart(compared: Compared): Shown {
  const { experiments, bestId, slo } = compared;
  const points = levelPoints(experiments);
  const front = paretoFront(points);
  let place = labelPlaces();
  const layout: LabelLayoutOptionCallback = ({ dataIndex, rect, labelRect }) => {
    if (dataIndex === 0) place = labelPlaces();
    return place(rect, { width: labelRect.width, height: LABEL_PX }) ?? OUT_OF_SIGHT;
  };
  const words = sloWords(slo, compared.constraints);
  const within = points.filter((point) => isWithinSlo(point.level, point.experiment, slo));
  // The best has its labels before others take their place.
  const labelled = front.toSorted(
    (a, b) =>
      Number(b.experiment.experiment_id === bestId) - Number(a.experiment.experiment_id === bestId),
  );
  const option: EChartsOption = {
    grid: { left: 56, right: 24, top: 52, bottom: 44 },
    tooltip: {
      trigger: "item",
      formatter: (at) => {
        const { name, value } = at as unknown as { name: string; value: number[] };
        return tip(name, t`${number(value[0])} tok/s per user, ${number(value[1])} tok/s per GPU`);
      },
    },
    legend: {
      top: 0,
      right: 0,
      selectedMode: false,
      itemHeight: 10,
      itemWidth: 14,
      textStyle: { color: chartToken("dim") },
      data: [
        { name: t`Pareto front`, icon: "inherit" },
        ...(within.length < points.length && words ? [{ name: OUTSIDE, icon: "circle" }] : []),
      ],
    },
    xAxis: {
      type: "value",
      scale: true,
      // None below, where it would reach under 0.
      boundaryGap: [0, "10%"],
      name: t`output tokens/s per user (mean over requests)`,
      ...axisName,
    },
    yAxis: {
      type: "value",
      name: t`output tokens/s per GPU (mean of the level)`,
      nameTextStyle: { align: "left" },
      scale: true,
      boundaryGap: [0, "20%"],
    },
    series: [
      ...experiments.map((experiment) => {
        const isBest = experiment.experiment_id === bestId;
        return {
          type: "scatter" as const,
          name: labelOf(experiment, compared),
          color: colorOf(experiment, compared),
          symbol: symbolOf(experiment, compared),
          symbolSize: isBest ? 13 : 8,
          data: points
            .filter((point) => point.experiment === experiment)
            .map((point) => ({
              name: `${labelOf(experiment, compared)}, ${levelName(point.level)}, n=${point.level.num_completed_requests}${front.includes(point) ? t`, on the Pareto front` : ""}`,
              value: [point.perUser, point.perGpu],
              experimentId: experiment.experiment_id,
              itemStyle: {
                opacity: isFaint(experiment, compared) ? 0.15 : 1,
                ...(within.includes(point)
                  ? {}
                  : {
                      color: chartToken("bg"),
                      borderColor: colorOf(experiment, compared),
                      borderWidth: 1.5,
                    }),
              },
            })),
        };
      }),
      {
        type: "line",
        name: t`Pareto front`,
        color: chartToken("dim"),
        symbol: "none",
        silent: true,
        z: 1,
        lineStyle: { type: "dashed", width: 1.4 },
        data: front.map((point) => [point.perUser, point.perGpu]),
      },
      ringed(OUTSIDE, "dim"),
      ...(words ? [sloRegion(points, within, words)].flat() : []),
      {
        type: "scatter",
        name: t`labels of the front`,
        silent: true,
        symbolSize: 0.1,
        // Else its words are as faint as points are.
        itemStyle: { opacity: 1 },
        labelLayout: layout,
        data: labelled.map((point) => ({
          value: [point.perUser, point.perGpu],
          label: {
            show: true,
            position: "right",
            lineHeight: LABEL_PX,
            color: chartToken("text"),
            fontSize: 11,
            formatter: `#${point.experiment.ordinal}${point.experiment.experiment_id === bestId ? " best" : ""} ×${loadText(point.level)}`,
          },
        })),
      },
    ],
  };
  const rows = points.map((point) => [
    point.experiment.ordinal,
    point.level.scenario,
    loadText(point.level),
    point.perUser,
    point.perGpu,
    front.includes(point) ? "front" : "",
    words && (within.includes(point) ? "within" : "broken"),
    point.experiment.experiment_id === bestId ? "best" : "",
    point.level.num_completed_requests,
  ]);
  const columns = [
    "experiment",
    "scenario",
    "concurrency",
    t`output tok/s per user`,
    t`output tok/s per GPU`,
    t`Pareto`,
    "SLO",
    t`task's choice`,
    "n",
  ];
  return { option, table: { columns, rows } };
}

/** All that some level reaches which keeps the SLO: whoever needs less is served by it. */
function sloRegion(points: LevelPoint[], within: LevelPoint[], words: string): SeriesOption[] {
  const slowest = Math.min(...points.map((point) => point.perUser));
  const reached = paretoFront(within).map((point) => [point.perUser, point.perGpu]);
  const top = reached[0]?.[1] ?? Math.max(...points.map((point) => point.perGpu));
  return [
    {
      type: "line",
      name: t`within the SLO`,
      silent: true,
      symbol: "none",
      step: "start",
      z: 0,
      color: chartToken("ok"),
      lineStyle: { width: 1, opacity: 0.6 },
      areaStyle: { opacity: 0.1, origin: "start" },
      data: reached.length > 0 ? [[slowest, top], ...reached] : [],
    },
    {
      type: "scatter",
      name: t`words of the SLO`,
      silent: true,
      symbolSize: 0.1,
      itemStyle: { opacity: 1 },
      data: [
        {
          // Above all points, whose labels are beside them.
          value: [slowest, Math.max(...points.map((point) => point.perGpu))],
          label: {
            show: true,
            position: [4, -24],
            color: chartToken("dim"),
            fontSize: 11,
            formatter: `${reached.length > 0 ? t`within the SLO` : t`nothing meets the SLO`}: ${words}`,
          },
        },
      ],
    },
  ];
}
