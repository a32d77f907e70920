import { t } from "@lingui/core/macro";
import type { EChartsOption } from "echarts";
import type { ExperimentDetail, Objective, RequestsView, SloSpec } from "@schemas/messages";
import { chartToken, seriesColors } from "@/components/chart/theme";
import { tip } from "@/components/chart/tip";
import type { Cell } from "@/lib/csv";
import { halfInterval, loadAxis, loadOf } from "@/domain/levels";
import { parametersText } from "@/domain/parameters";
import { number } from "@/lib/units";
import { DASHES, SHAPES, type Mark } from "./marks";
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
  /** Of each experiment, by its id. */
  marks: Map<string, Mark>;
}

export const LATENCY_WORDS: Record<LatencyName, string> = {
  e2e_latency: t`e2e latency`,
  ttft: t`time to first token`,
  tpot: t`time per output token`,
};

export function labelOf(experiment: ExperimentDetail, { names }: Compared): string {
  return `#${experiment.ordinal} ${parametersText(experiment.parameters, names)}`.trim();
}

const markOf = ({ experiment_id }: ExperimentDetail, { marks }: Compared): Mark =>
  marks.get(experiment_id) ?? { series: 1, shape: 0 };

/** As the legend has it. */
export const colorOf = (experiment: ExperimentDetail, compared: Compared) =>
  seriesColors()[markOf(experiment, compared).series - 1] ?? "";

export const symbolOf = (experiment: ExperimentDetail, compared: Compared) =>
  `path://${SHAPES[markOf(experiment, compared).shape]}`;

/** Of a line without points: what tells it from one of the same colour. */
const dashOf = (experiment: ExperimentDetail, compared: Compared) =>
  DASHES[markOf(experiment, compared).shape % DASHES.length];

/** "#12" at the end of a line, of the few that are picked or of the best alone: more would lie over each other. */
const endLabel = (experiment: ExperimentDetail, compared: Compared) => ({
  show:
    experiment.experiment_id === compared.bestId ||
    compared.picked.includes(experiment.experiment_id),
  formatter: `#${experiment.ordinal}`,
  color: colorOf(experiment, compared),
  fontSize: 11,
  distance: 4,
});

export const isFaint = (experiment: ExperimentDetail, { picked }: Compared) =>
  picked.length > 0 && !picked.includes(experiment.experiment_id);

export const axisName = { nameLocation: "middle" as const, nameGap: 28 };

const KNEE = "knee";
const FIRST_BREACH = t`first SLO breach`;

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
    const color = colorOf(experiment, compared);
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
          symbol: symbolOf(experiment, compared),
          symbolSize: p.isFirstBreach || p.level === atKnee ? 12 : 7,
          itemStyle: {
            opacity: faint,
            ...(p.isFirstBreach
              ? { borderColor: chartToken("bad"), borderWidth: 3 }
              : p.level === atKnee
                ? { borderColor: chartToken("text"), borderWidth: 2 }
                : {}),
          },
        })),
        endLabel: endLabel(experiment, compared),
        labelLayout: { moveOverlap: "shiftY" as const },
      },
    ];
  });
  const option: EChartsOption = {
    grid: { left: 56, right: 40, top: 52, bottom: 44 },
    tooltip: {
      trigger: "item",
      formatter: (at) => {
        const { seriesName, value } = at as unknown as { seriesName: string; value: number[] };
        return tip(seriesName, t`at ${number(value[0])}: ${number(value[1])} ms`);
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
        { name: KNEE, icon: "circle" },
        ...(bound === null ? [] : [{ name: FIRST_BREACH, icon: "circle" }]),
      ],
    },
    xAxis: { type: "value", name: `${loadAxis(shown)}, ${scenario}`, ...axisName },
    yAxis: {
      type: "value",
      name:
        statistic === "mean"
          ? t`${LATENCY_WORDS[name]}, mean with 95 % interval (ms)`
          : `${LATENCY_WORDS[name]}, ${statistic} (ms)`,
      nameTextStyle: { align: "left" },
    },
    series: [
      ...curves,
      // Without data of their own: the legend names the marks by them.
      ringed(KNEE, "text"),
      ringed(FIRST_BREACH, "bad"),
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
    t`± 95 % (s)`,
    "n",
  ];
  return { option, table: { columns, rows } };
}

/** In a legend: what a ring of this colour means, around any mark. */
export const ringed = (name: string, token: string) => ({
  type: "scatter" as const,
  name,
  color: chartToken("bg"),
  itemStyle: { color: chartToken("bg"), borderColor: chartToken(token), borderWidth: 2 },
  data: [],
});

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

export function cdfChart(
  compared: Compared,
  requests: RequestsView[],
  kind: "ttft" | "tpot",
): Shown {
  const rows: Cell[][] = [];
  const word = kind === "ttft" ? t`time to first token` : t`time per output token`;
  const option: EChartsOption = {
    grid: { left: 56, right: 24, top: 56, bottom: 44 },
    tooltip: { valueFormatter: (value) => `${number(Number(value) * 100)} %` },
    legend: {
      top: 0,
      left: 0,
      icon: "inherit",
      itemWidth: 24,
      itemHeight: 8,
      textStyle: { color: chartToken("dim"), fontSize: 11 },
    },
    xAxis: { type: "value", scale: true, name: t`${word} of each request (ms)`, ...axisName },
    yAxis: { type: "value", max: 1, name: t`share of requests`, nameTextStyle: { align: "left" } },
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
        color: experiment && colorOf(experiment, compared),
        ...(experiment && { lineStyle: { width: 1.6, type: dashOf(experiment, compared) } }),
        data: steps.map(([value, share]) => [value * 1000, share]),
      };
    }),
  };
  return { option, table: { columns: ["experiment", `${kind} (s)`, t`share of requests`], rows } };
}
