import type { EChartsOption } from "echarts";
import type { ExperimentDetail, Objective, RequestsView, SloSpec } from "@schemas/messages";
import { chartToken, seriesColors } from "@/components/chart/theme";
import { tip } from "@/components/chart/tip";
import { brokenBy } from "@/lib/constraints";
import type { Cell } from "@/lib/csv";
import { halfInterval, loadAxis, loadOf } from "@/lib/levels";
import { parametersText, valueText } from "@/lib/parameters";
import { moment } from "@/lib/time";
import { number } from "@/lib/units";
import { objectiveOf } from "../task-sums";
import {
  cumulative,
  knee,
  sloBound,
  type LatencyName,
  type Statistic,
} from "./points";

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

export function labelOf(each: ExperimentDetail, { names }: Compared): string {
  return `#${each.ordinal} ${parametersText(each.parameters, names)}`.trim();
}

/** As the legend has it. */
export function colorOf(each: ExperimentDetail): string {
  const colors = seriesColors();
  return colors[(each.ordinal - 1) % colors.length] ?? "";
}

export const isFaint = (each: ExperimentDetail, { picked }: Compared) =>
  picked.length > 0 && !picked.includes(each.experiment_id);

export const axisName = { nameLocation: "middle" as const, nameGap: 28 };

const KNEE = "knee";
const FIRST_BREACH = "first SLO breach";

export function latencyChart(compared: Compared, name: LatencyName, statistic: Statistic, scenario: string): Shown {
  const bound = sloBound(compared.slo, name, statistic);
  const shown = compared.experiments.flatMap((each) => each.benchmark?.levels ?? []).filter((level) => level.scenario === scenario);
  const rows: Cell[][] = [];
  const curves = compared.experiments.flatMap((each) => {
    const levels = (each.benchmark?.levels ?? [])
      .filter((level) => level.scenario === scenario && level.stats[name])
      .toSorted((a, b) => loadOf(a) - loadOf(b));
    const atKnee = knee(levels, name);
    let isBroken = false;
    const points = levels.flatMap((level) => {
      const found = level.stats[name];
      if (!found) return [];
      const value = found[statistic];
      const half = statistic === "mean" ? halfInterval(found, level.num_completed_requests) : null;
      const isFirstBreach = bound !== null && !isBroken && value > bound;
      isBroken ||= isFirstBreach;
      rows.push([each.ordinal, loadOf(level), level.requests_per_second, value, half, level.num_completed_requests]);
      return [{ level, value, half, isFirstBreach }];
    });
    if (points.length === 0) return [];
    const faint = isFaint(each, compared) ? 0.12 : 1;
    const color = colorOf(each);
    const base = {
      type: "line" as const,
      stack: each.experiment_id,
      symbol: "none",
      silent: true,
      lineStyle: { opacity: 0 },
      tooltip: { show: false },
    };
    return [
      ...(statistic === "mean"
        ? [
            { ...base, data: points.map((p) => [loadOf(p.level), (p.value - (p.half ?? 0)) * 1000]) },
            {
              ...base,
              areaStyle: { color, opacity: 0.18 * faint },
              data: points.map((p) => [loadOf(p.level), 2 * (p.half ?? 0) * 1000]),
            },
          ]
        : []),
      {
        type: "line" as const,
        name: labelOf(each, compared),
        color,
        lineStyle: { opacity: faint, width: each.experiment_id === compared.bestId ? 3 : 1.6 },
        itemStyle: { opacity: faint },
        data: points.map((p) => ({
          value: [loadOf(p.level), p.value * 1000],
          experimentId: each.experiment_id,
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
                label: { formatter: `SLO ${number(bound * 1000)} ms`, color: chartToken("bad"), position: "insideEndTop" as const },
                data: [{ yAxis: bound * 1000 }],
              },
            },
          ]),
    ],
  };
  const columns = ["experiment", "load", "requests/s", `${name} ${statistic} (s)`, "± 95 % (s)", "n"];
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
  const found = [...new Set(values)];
  const isNumeric = found.every((value) => typeof value === "number");
  if (isNumeric && (!isParameter || found.length > MOST_CATEGORIES)) return null;
  return (isNumeric ? found.toSorted((a, b) => Number(a) - Number(b)) : found).map(String);
}

const cellText = (cell: number | string | undefined) => (typeof cell === "number" ? number(cell) : (cell ?? ""));

export function parallelChart(compared: Compared): Shown {
  const { experiments, names, bestId, objective } = compared;
  const { word, unit } = objectiveOf(objective, experiments);
  const scored = experiments.filter((each) => each.metrics);
  const axes = [
    ...names.map((name) => ({ name, of: (each: ExperimentDetail) => each.parameters[name] })),
    { name: "ttft, mean (ms)", of: (each: ExperimentDetail) => (each.metrics?.mean_ttft ?? NaN) * 1000 },
    { name: "tpot, mean (ms)", of: (each: ExperimentDetail) => (each.metrics?.mean_tpot ?? NaN) * 1000 },
    { name: `${word} (${unit})`, of: (each: ExperimentDetail) => each.objective_score },
  ];
  const isNumeric = axes.map(({ of }) => scored.every((each) => typeof of(each) === "number"));
  const cell = (each: ExperimentDetail, index: number): number | string => {
    const value = axes[index]?.of(each);
    return isNumeric[index] ? (value as number) : valueText(value);
  };
  const categories = axes.map((_, index) =>
    categoriesOf(scored.map((each) => cell(each, index)), index < names.length),
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
          parallelAxis: axes.map(({ name }, dim) => ({ dim, name: inLines(name, 8), nameLocation: "start", nameGap: 8 })),
        },
      },
    ],
    series: [
      {
        type: "parallel",
        smooth: false,
        data: scored.map((each) => ({
          name: labelOf(each, compared),
          experimentId: each.experiment_id,
          value: axes.map((_, index) => (categories[index] ? String(cell(each, index)) : cell(each, index))),
          lineStyle: {
            color: colorOf(each),
            width: each.experiment_id === bestId ? 4 : 1.6,
            opacity: isFaint(each, compared) ? 0.1 : 0.85,
          },
        })),
      },
    ],
  };
  const rows = scored.map((each) => [each.ordinal, ...axes.map((_, index) => cell(each, index))]);
  return { option, table: { columns: ["experiment", ...axes.map((axis) => axis.name)], rows } };
}

export function historyChart(compared: Compared): Shown {
  const { word, unit, isSmallerBetter } = objectiveOf(compared.objective, compared.experiments);
  const ended = compared.experiments
    .flatMap((each) =>
      each.finished_at && each.objective_score !== null
        ? [{ each, at: each.finished_at, score: each.objective_score }]
        : [],
    )
    .toSorted((a, b) => a.at.localeCompare(b.at));
  let best: number | null = null;
  // What misses a constraint is never the best, however good its score.
  const bests = ended.map(({ each, at, score }) => {
    if (brokenBy(each).length === 0) {
      best = best === null ? score : isSmallerBetter ? Math.min(best, score) : Math.max(best, score);
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
    yAxis: { type: "value", scale: true, name: `${word} (${unit})`, nameTextStyle: { align: "left" } },
    series: [
      {
        type: "scatter",
        name: "experiments",
        symbolSize: 8,
        data: ended.map(({ each, at, score }) => ({
          name: labelOf(each, compared),
          value: [at, score],
          experimentId: each.experiment_id,
          itemStyle: { opacity: isFaint(each, compared) ? 0.15 : 1 },
        })),
      },
      { type: "line", name: "best so far", step: "end", symbol: "none", data: bests },
    ],
  };
  const rows = ended.map(({ each, at, score }, index) => [each.ordinal, at, score, bests[index]?.[1] ?? null]);
  return { option, table: { columns: ["experiment", "ended at", `${word} (${unit})`, "best so far"], rows } };
}

export function cdfChart(compared: Compared, requests: RequestsView[], kind: "ttft" | "tpot"): Shown {
  const rows: Cell[][] = [];
  const word = kind === "ttft" ? "time to first token" : "time per output token";
  const option: EChartsOption = {
    grid: { left: 56, right: 24, top: 32, bottom: 44 },
    tooltip: { valueFormatter: (value) => `${number(Number(value) * 100)} %` },
    legend: { show: false },
    xAxis: { type: "value", scale: true, name: `${word} of each request (ms)`, ...axisName },
    yAxis: { type: "value", max: 1, name: "share of requests", nameTextStyle: { align: "left" } },
    series: requests.map((view) => {
      const each = compared.experiments.find((one) => one.experiment_id === view.experiment_id);
      const values = view.ttft.map((ttft, index) => {
        const [whole, tokens] = [view.e2e_latency[index] ?? null, view.num_output_tokens[index] ?? null];
        if (kind === "ttft" || ttft === null) return ttft;
        return whole === null || tokens === null || tokens < 2 ? null : (whole - ttft) / (tokens - 1);
      });
      const steps = cumulative(values);
      const name = each ? labelOf(each, compared) : "";
      for (const [value, share] of steps) rows.push([each?.ordinal ?? null, value, share]);
      return {
        type: "line" as const,
        name,
        step: "end" as const,
        symbol: "none",
        color: each && colorOf(each),
        data: steps.map(([value, share]) => [value * 1000, share]),
      };
    }),
  };
  return { option, table: { columns: ["experiment", `${kind} (s)`, "share of requests"], rows } };
}
