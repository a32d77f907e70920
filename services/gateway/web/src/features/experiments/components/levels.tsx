import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMemo } from "react";
import type { EChartsOption } from "echarts";
import type { BenchmarkResult, Distribution, LevelResult, LoadBoundary } from "@schemas/messages";
import { Chart } from "@/components/chart/chart";
import { ChartGrid } from "@/components/chart/chart-grid";
import { DataTable, type Column } from "@/components/data-table";
import { StateMark } from "@/components/state-mark";
import {
  boundaryNotes,
  boundaryText,
  byScenario,
  halfInterval,
  isWhole,
  levelName,
  loadAxis,
  loadOf,
  loadText,
  requestText,
} from "@/domain/levels";
import { datasetText, traceText } from "@/domain/dataset";
import { hasPrefixShare, prefixShareText } from "@/domain/turns";
import { alignedNumber, number, percent, UNKNOWN, whole } from "@/lib/units";
import { Turns } from "./turns";

const ms = (seconds: number | null | undefined) =>
  alignedNumber(seconds === null || seconds === undefined ? null : seconds * 1000);

function latency(
  name: string,
  of: (level: LevelResult) => Distribution | null,
): Column<LevelResult> {
  return {
    name,
    unit: t`ms, mean (p99)`,
    isNumber: true,
    title: t`mean and 99th percentile over all requests of the level`,
    sortBy: (level) => of(level)?.mean,
    cell: (level) => (
      <>
        {ms(of(level)?.mean)} <span className="dim">({ms(of(level)?.p99)})</span>
      </>
    ),
  };
}

const COLUMNS: Column<LevelResult>[] = [
  { name: t`Scenario`, cell: (level) => level.scenario, sortBy: (level) => level.scenario },
  {
    name: t`Load`,
    title: t`concurrent requests, or the arrival pattern`,
    isNumber: true,
    cell: loadText,
    sortBy: loadOf,
  },
  latency("TTFT", (level) => level.stats.ttft),
  latency("TPOT", (level) => level.stats.tpot),
  latency("E2E", (level) => level.stats.e2e_latency),
  {
    name: t`Output`,
    unit: t`tok/s, mean`,
    isNumber: true,
    cell: (level) => number(level.mean_output_throughput_tokens_per_s),
    sortBy: (level) => level.mean_output_throughput_tokens_per_s,
  },
  {
    name: t`Total`,
    unit: t`tok/s, mean`,
    isNumber: true,
    title: t`input and output tokens`,
    cell: (level) => number(level.mean_total_tokens_throughput_tokens_per_s),
    sortBy: (level) => level.mean_total_tokens_throughput_tokens_per_s,
  },
  {
    name: t`Requests`,
    unit: t`per s`,
    isNumber: true,
    cell: (level) => alignedNumber(level.requests_per_second),
  },
  {
    name: t`Completed`,
    unit: t`of n`,
    isNumber: true,
    cell: (level) => `${whole(level.num_completed_requests)} / ${whole(level.num_requests)}`,
  },
  {
    name: t`Errors`,
    isNumber: true,
    cell: (level) =>
      level.num_error_requests > 0 ? (
        <StateMark
          kind="bad"
          word={percent(level.error_rate * 100)}
          title={Object.entries(level.error_codes_frequency)
            .map(([code, count]) => `${code}: ${count}`)
            .join(", ")}
        />
      ) : (
        "0"
      ),
  },
  {
    name: t`Bound`,
    isLong: true,
    title: t`what limited the level, by the engine's own metrics`,
    cell: ({ bound }) =>
      bound ? (
        <>
          {bound.bound.replaceAll("_", " ")} <div className="dim">{bound.evidence}</div>
        </>
      ) : (
        UNKNOWN
      ),
  },
];

const ITEMS: Column<LevelResult> = {
  name: t`Items`,
  unit: t`per s`,
  title: t`inputs or documents, of which each request had several`,
  isNumber: true,
  cell: (level) => number(level.items_per_second),
  sortBy: (level) => level.items_per_second,
};

/** Of answers that come token by token. */
const OF_TOKENS = ["TTFT", "TPOT", t`Output`];

const PREFIX: Column<LevelResult> = {
  name: t`Prefix hits`,
  unit: t`of prompt tokens`,
  title: t`share of prompt tokens served from the engine's prefix cache, of what earlier requests made available`,
  isNumber: true,
  sortBy: (level) => level.prefix_cache?.hit_share,
  cell: (level) => prefixShareText(level.prefix_cache) ?? UNKNOWN,
};

/** Those that the levels have figures for. */
export function levelColumns(levels: LevelResult[]): Column<LevelResult>[] {
  const [before, bound] = [COLUMNS.slice(0, -1), COLUMNS.slice(-1)];
  const shown = levels.some(isWhole)
    ? [...before.filter(({ name }) => !OF_TOKENS.includes(name)), ITEMS]
    : before;
  return [...shown, ...(levels.some(hasPrefixShare) ? [PREFIX] : []), ...bound];
}

export function Levels({
  benchmark,
  boundary,
}: {
  benchmark: BenchmarkResult;
  boundary: LoadBoundary | null | undefined;
}) {
  const latencies = useMemo(() => latencyChart(benchmark), [benchmark]);
  const rates = useMemo(() => throughputChart(benchmark), [benchmark]);
  const columns = levelColumns(benchmark.levels);
  const requests = [...new Set(benchmark.levels.map(requestText).filter(Boolean))].join("; ");
  return (
    <section>
      <h2>
        <Trans>Benchmark by level</Trans>
      </h2>
      {benchmark.dataset && <p className="dim">{datasetText(benchmark.dataset)}</p>}
      {benchmark.trace && <p className="dim">{traceText(benchmark.trace)}</p>}
      {requests && <p className="dim">{requests}</p>}
      {boundary && (
        <p>
          <Trans>
            Max load within the constraints: <strong>{boundaryText(boundary)}</strong>
            <span className="dim">
              {[t`; found in ${boundary.levels} levels`, ...boundaryNotes(boundary)].join("; ")}
            </span>
          </Trans>
        </p>
      )}
      <DataTable
        label={t`Levels of the benchmark`}
        columns={columns}
        rows={benchmark.levels}
        rowKey={(level) => `${levelName(level)} ${level.started_at}`}
      />
      <ChartGrid>
        <Chart title={t`Latency by load`} {...latencies} empty={t`No level was completed.`} />
        <Chart title={t`Throughput by load`} {...rates} empty={t`No level was completed.`} />
      </ChartGrid>
      <Turns benchmark={benchmark} />
    </section>
  );
}

const axisOf = ({ levels }: BenchmarkResult) => ({
  type: "value" as const,
  name: loadAxis(levels),
  nameLocation: "middle" as const,
  nameGap: 26,
});

function latencyChart(benchmark: BenchmarkResult) {
  const groups = [...byScenario(benchmark.levels)];
  const kinds = (
    [
      ["E2E", (level: LevelResult) => level.stats.e2e_latency],
      ["TTFT", (level: LevelResult) => level.stats.ttft],
    ] as const
  ).filter(([, of]) => benchmark.levels.some(of));
  const lines = groups.flatMap(([scenario, levels]) =>
    kinds.flatMap(([kind, of]) =>
      (["mean", "p99"] as const).map((statistic) => ({
        type: "line" as const,
        name: `${kind} ${statistic}${groups.length > 1 ? ` ${scenario}` : ""}`,
        symbolSize: 6,
        lineStyle: { type: statistic === "p99" ? ("dashed" as const) : ("solid" as const) },
        tooltip: { valueFormatter: (value: unknown) => `${number(Number(value))} ms` },
        data: levels.flatMap((level) => {
          const distribution = of(level);
          return distribution ? [[loadOf(level), distribution[statistic] * 1000]] : [];
        }),
      })),
    ),
  );
  const option: EChartsOption = {
    grid: { left: 56, right: 16, top: 52, bottom: 40 },
    xAxis: axisOf(benchmark),
    yAxis: { type: "value", name: t`latency (ms)`, nameTextStyle: { align: "left" } },
    series: lines,
  };
  const rows = benchmark.levels.flatMap((level) =>
    kinds.flatMap(([kind, of]) => {
      const distribution = of(level);
      if (!distribution) return [];
      const half = halfInterval(distribution, level.num_completed_requests);
      return [
        [
          level.scenario,
          loadText(level),
          kind,
          distribution.mean,
          half,
          distribution.p50,
          distribution.p99,
          level.num_completed_requests,
        ],
      ];
    }),
  );
  const columns = [
    "scenario",
    "load",
    "latency",
    t`mean (s)`,
    t`± 95 % (s)`,
    "p50 (s)",
    "p99 (s)",
    "n",
  ];
  return { option, table: { columns, rows } };
}

function throughputChart(benchmark: BenchmarkResult) {
  const groups = [...byScenario(benchmark.levels)];
  const kinds = (
    [
      [t`total`, (level: LevelResult) => level.mean_total_tokens_throughput_tokens_per_s],
      [t`output`, (level: LevelResult) => level.mean_output_throughput_tokens_per_s],
    ] as const
  ).filter(([, of]) => benchmark.levels.some((level) => of(level) !== null));
  const option: EChartsOption = {
    grid: { left: 56, right: 16, top: 52, bottom: 40 },
    xAxis: axisOf(benchmark),
    yAxis: {
      type: "value",
      name: t`throughput, mean of the level (tokens/s)`,
      nameTextStyle: { align: "left" },
    },
    series: groups.flatMap(([scenario, levels]) =>
      kinds.map(([kind, of]) => ({
        type: "line" as const,
        name: `${kind}${groups.length > 1 ? ` ${scenario}` : ""}`,
        symbolSize: 6,
        tooltip: { valueFormatter: (value: unknown) => `${number(Number(value))} tok/s` },
        data: levels.map((level) => [loadOf(level), of(level)]),
      })),
    ),
  };
  const rows = benchmark.levels.map((level) => [
    level.scenario,
    loadText(level),
    ...kinds.map(([, of]) => of(level)),
    level.num_completed_requests,
  ]);
  return {
    option,
    table: {
      columns: [
        "scenario",
        "load",
        ...[t`total (tok/s)`, t`output (tok/s)`].slice(0, kinds.length),
        "n",
      ],
      rows,
    },
  };
}
