import type { EChartsOption } from "echarts";
import type { ExperimentDetail, Objective, RequestsView, SloSpec } from "@schemas/messages";
import { chartToken, seriesColors } from "@/components/chart/theme";
import { tip } from "@/components/chart/tip";
import { brokenBy } from "@/domain/constraints";
import type { Cell } from "@/lib/csv";
import { halfInterval, loadAxis, loadOf } from "@/domain/levels";
import { parametersText } from "@/domain/parameters";
import { moment } from "@/lib/time";
import { number } from "@/lib/units";
import { objectiveOf } from "../task-sums";
import { cumulative, knee, sloBound, type LatencyName, type Statistic } from "./points";

/** An option, and what it shows as a table. */
export interface Shown {
  option: EChartsOption;
  table: { columns: string[]; rows: Cell[][] };
}

/** What all charts of a comparison share. */
export interface Compared {
  /** One of each configuration, and those that are picked. */
  experiments: ExperimentDetail[];
  /** All that count of each configuration, by its first. */
  runs: Map<number, ExperimentDetail[]>;
  /** Parameters that differ. */
  names: string[];
  bestId: string | null;
  picked: string[];
  objective: Objective;
  slo: SloSpec | null | undefined;
  constraints: string;
}

export const LATENCY_WORDS: Record<LatencyName, string> = {
  e2e_latency: "e2e latency",
  ttft: "time to first token",
  tpot: "time per output token",
};

export function labelOf(experiment: ExperimentDetail, { names }: Compared): string {
  return `#${experiment.ordinal} ${parametersText(experiment.parameters, names)}`.trim();
}

/** As the legend has it. */
export function colorOf(experiment: ExperimentDetail): string {
  const colors = seriesColors();
  return colors[(experiment.ordinal - 1) % colors.length] ?? "";
}

export const isFaint = (experiment: ExperimentDetail, { picked }: Compared) =>
  picked.length > 0 && !picked.includes(experiment.experiment_id);

export const axisName = { nameLocation: "middle" as const, nameGap: 28 };

const KNEE = "knee";
const FIRST_BREACH = "first SLO breach";

export function latencyChart(
  compared: Compared,
  name: LatencyName,
  statistic: Statistic,
  scenario: string,
): Shown {
  const bound = sloBound(compared.slo, name, statistic);
  const shown = compared.experiments
    .flatMap((experiment) => experiment.benchmark?.levels ?? [])
    .filter((level) => level.scenario === scenario);
  const rows: Cell[][] = [];
  const curves = compared.experiments.flatMap((experiment) => {
    const levels = (experiment.benchmark?.levels ?? [])
      .filter((level) => level.scenario === scenario && level.stats[name])
      .toSorted((a, b) => loadOf(a) - loadOf(b));
    const atKnee = knee(levels, name);
    let isBroken = false;
    const points = levels.flatMap((level) => {
      const distribution = level.stats[name];
      if (!distribution) return [];
      const value = distribution[statistic];
      const half =
        statistic === "mean" ? halfInterval(distribution, level.num_completed_requests) : null;
      const isFirstBreach = bound !== null && !isBroken && value > bound;
      isBroken ||= isFirstBreach;
      rows.push([
        experiment.ordinal,
        loadOf(level),
        level.requests_per_second,
        value,
        half,
        level.num_completed_requests,
      ]);
      return [{ level, value, half, isFirstBreach }];
    });
    if (points.length === 0) return [];
    const faint = isFaint(experiment, compared) ? 0.12 : 1;
    const color = colorOf(experiment);
    const base = {
      type: "line" as const,
      stack: experiment.experiment_id,
      symbol: "none",
      silent: true,
      lineStyle: { opacity: 0 },
      tooltip: { show: false },
    };
    return [
      ...(statistic === "mean"
        ? [
            {
              ...base,
              data: points.map((p) => [loadOf(p.level), (p.value - (p.half ?? 0)) * 1000]),
            },
            {
              ...base,
              areaStyle: { color, opacity: 0.18 * faint },
              data: points.map((p) => [loadOf(p.level), 2 * (p.half ?? 0) * 1000]),
            },
          ]
        : []),
      {
        type: "line" as const,
        name: labelOf(experiment, compared),
        color,
        lineStyle: {
          opacity: faint,
          width: experiment.experiment_id === compared.bestId ? 3 : 1.6,
        },
        itemStyle: { opacity: faint },
        data: points.map((p) => ({
          value: [loadOf(p.level), p.value * 1000],
          experimentId: experiment.experiment_id,
          symbol: p.isFirstBreach ? "triangle" : p.level === atKnee ? "diamond" : "circle",
          symbolSize: p.isFirstBreach || p.level === atKnee ? 12 : 5,
          ...(p.isFirstBreach ? { itemStyle: { color: chartToken("bad") } } : {}),
        })),
      },
    ];
  });
  const option: EChartsOption = {
    grid: { left: 56, right: 24, top: 52, bottom: 44 },
    tooltip: {
      trigger: "item",
      formatter: (at) => {
        const { seriesName, value } = at as unknown as { seriesName: string; value: number[] };
        return tip(seriesName, `at ${number(value[0])}: ${number(value[1])} ms`);
      },
    },
    legend: {
      top: 0,
      right: 0,
      selectedMode: false,
      itemHeight: 10,
      itemWidth: 10,
      textStyle: { color: chartToken("dim") },
      data: [
        { name: KNEE, icon: "diamond" },
        { name: FIRST_BREACH, icon: "triangle" },
      ],
    },
    xAxis: { type: "value", name: `${loadAxis(shown)}, ${scenario}`, ...axisName },
    yAxis: {
      type: "value",
      name: `${LATENCY_WORDS[name]}, ${statistic}${statistic === "mean" ? " with 95 % interval" : ""} (ms)`,
      nameTextStyle: { align: "left" },
    },
    series: [
      ...curves,
      // Without data of their own: the legend names the marks by them.
      { type: "scatter", name: KNEE, color: chartToken("dim"), data: [] },
      { type: "scatter", name: FIRST_BREACH, color: chartToken("bad"), data: [] },
      ...(bound === null
        ? []
        : [
            {
              type: "line" as const,
              name: "SLO",
              data: [],
              markLine: {
                silent: true,
                symbol: "none",
                lineStyle: { color: chartToken("bad"), type: "dashed" as const },
                label: {
                  formatter: `SLO ${number(bound * 1000)} ms`,
                  color: chartToken("bad"),
                  position: "insideEndTop" as const,
                },
                data: [{ yAxis: bound * 1000 }],
              },
            },
          ]),
    ],
  };
  const columns = [
    "experiment",
    "load",
    "requests/s",
    `${name} ${statistic} (s)`,
    "± 95 % (s)",
    "n",
  ];
  return { option, table: { columns, rows } };
}

/** Of an axis that has little room beside it: words a line, of at least so many letters. */
export function inLines(name: string, least = 12): string {
  return name.replaceAll(new RegExp(`(.{${least},}?) `, "g"), "$1\n");
}

/** Of more, a parameter's values are a scale of numbers. */
const MOST_CATEGORIES = 8;

/** The values themselves in their order, where they are few or no numbers: nothing lies between them. */
export function categoriesOf(values: (number | string)[], isParameter: boolean): string[] | null {
  const distinct = [...new Set(values)];
  const isNumeric = distinct.every((value) => typeof value === "number");
  if (isNumeric && (!isParameter || distinct.length > MOST_CATEGORIES)) return null;
  return (isNumeric ? distinct.toSorted((a, b) => a - b) : distinct).map(String);
}

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
  const option: EChartsOption = {
    grid: { left: 56, right: 24, top: 56, bottom: 28 },
    tooltip: {
      trigger: "item",
      formatter: (at) => {
        const { name, value } = at as unknown as { name: string; value: [string, number] };
        return tip(name || "best so far", `${number(value[1])} ${unit}, ${moment(value[0])}`);
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
        name: "experiments",
        symbolSize: 8,
        data: ended.map(({ experiment, at, score }) => ({
          name: labelOf(experiment, compared),
          value: [at, score],
          experimentId: experiment.experiment_id,
          itemStyle: { opacity: isFaint(experiment, compared) ? 0.15 : 1 },
        })),
      },
      { type: "line", name: "best so far", step: "end", symbol: "none", data: bests },
    ],
  };
  const rows = ended.map(({ experiment, at, score }, index) => [
    experiment.ordinal,
    at,
    score,
    bests[index]?.[1] ?? null,
  ]);
  return {
    option,
    table: { columns: ["experiment", "ended at", `${word} (${unit})`, "best so far"], rows },
  };
}

export function cdfChart(
  compared: Compared,
  requests: RequestsView[],
  kind: "ttft" | "tpot",
): Shown {
  const rows: Cell[][] = [];
  const word = kind === "ttft" ? "time to first token" : "time per output token";
  const option: EChartsOption = {
    grid: { left: 56, right: 24, top: 32, bottom: 44 },
    tooltip: { valueFormatter: (value) => `${number(Number(value) * 100)} %` },
    legend: { show: false },
    xAxis: { type: "value", scale: true, name: `${word} of each request (ms)`, ...axisName },
    yAxis: { type: "value", max: 1, name: "share of requests", nameTextStyle: { align: "left" } },
    series: requests.map((view) => {
      const experiment = compared.experiments.find(
        (one) => one.experiment_id === view.experiment_id,
      );
      const values = view.ttft.map((ttft, index) => {
        const [whole, tokens] = [
          view.e2e_latency[index] ?? null,
          view.num_output_tokens[index] ?? null,
        ];
        if (kind === "ttft" || ttft === null) return ttft;
        return whole === null || tokens === null || tokens < 2
          ? null
          : (whole - ttft) / (tokens - 1);
      });
      const steps = cumulative(values);
      const name = experiment ? labelOf(experiment, compared) : "";
      for (const [value, share] of steps) rows.push([experiment?.ordinal ?? null, value, share]);
      return {
        type: "line" as const,
        name,
        step: "end" as const,
        symbol: "none",
        color: experiment && colorOf(experiment),
        data: steps.map(([value, share]) => [value * 1000, share]),
      };
    }),
  };
  return { option, table: { columns: ["experiment", `${kind} (s)`, "share of requests"], rows } };
}
