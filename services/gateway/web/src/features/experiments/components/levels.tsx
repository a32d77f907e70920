import { useMemo } from "react";
import type { EChartsOption } from "echarts";
import type { BenchmarkResult, Distribution, LevelResult, LoadBoundary } from "@schemas/messages";
import { Chart } from "@/components/chart/chart";
import { ChartGrid } from "@/components/chart/chart-grid";
import { DataTable, type Column } from "@/components/data-table";
import { SimulatedBadge } from "@/components/simulated-badge";
import { StateMark } from "@/components/state-mark";
import {
  boundaryNotes,
  boundaryText,
  byScenario,
  halfInterval,
  levelName,
  loadAxis,
  loadOf,
  loadText,
} from "@/domain/levels";
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
    unit: "ms, mean (p99)",
    isNumber: true,
    title: "mean and 99th percentile over all requests of the level",
    sortBy: (level) => of(level)?.mean,
    cell: (level) => (
      <>
        {ms(of(level)?.mean)} <span className="dim">({ms(of(level)?.p99)})</span>
      </>
    ),
  };
}

const COLUMNS: Column<LevelResult>[] = [
  { name: "Scenario", cell: (level) => level.scenario, sortBy: (level) => level.scenario },
  {
    name: "Load",
    title: "concurrent requests, or the arrival pattern",
    isNumber: true,
    cell: loadText,
    sortBy: loadOf,
  },
  latency("TTFT", (level) => level.stats.ttft),
  latency("TPOT", (level) => level.stats.tpot),
  latency("E2E", (level) => level.stats.e2e_latency),
  {
    name: "Output",
    unit: "tok/s, mean",
    isNumber: true,
    cell: (level) => number(level.mean_output_throughput_tokens_per_s),
    sortBy: (level) => level.mean_output_throughput_tokens_per_s,
  },
  {
    name: "Total",
    unit: "tok/s, mean",
    isNumber: true,
    title: "input and output tokens",
    cell: (level) => number(level.mean_total_tokens_throughput_tokens_per_s),
    sortBy: (level) => level.mean_total_tokens_throughput_tokens_per_s,
  },
  {
    name: "Requests",
    unit: "per s",
    isNumber: true,
    cell: (level) => alignedNumber(level.requests_per_second),
  },
  {
    name: "Completed",
    unit: "of n",
    isNumber: true,
    cell: (level) => `${whole(level.num_completed_requests)} / ${whole(level.num_requests)}`,
  },
  {
    name: "Errors",
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
    name: "Bound",
    isLong: true,
    title: "what limited the level, by the engine's own metrics",
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

const PREFIX: Column<LevelResult> = {
  name: "Prefix hits",
  unit: "of prompt tokens",
  title:
    "share of prompt tokens served from the engine's prefix cache, of what earlier requests made available",
  isNumber: true,
  sortBy: (level) => level.prefix_cache?.hit_share,
  cell: (level) => prefixShareText(level.prefix_cache) ?? UNKNOWN,
};

export function Levels({
  benchmark,
  boundary,
}: {
  benchmark: BenchmarkResult;
  boundary: LoadBoundary | null | undefined;
}) {
  const latencies = useMemo(() => latencyChart(benchmark), [benchmark]);
  const rates = useMemo(() => throughputChart(benchmark), [benchmark]);
  const columns = benchmark.levels.some(hasPrefixShare)
    ? [...COLUMNS.slice(0, -1), PREFIX, ...COLUMNS.slice(-1)]
    : COLUMNS;
  return (
    <section>
      <h2>
        Benchmark by level {benchmark.simulated && <SimulatedBadge />}{" "}
        <span className="dim" style={{ fontWeight: 400 }}>
          {benchmark.tool} {benchmark.tool_version}
        </span>
      </h2>
      {boundary && (
        <p>
          Max load within the constraints: <strong>{boundaryText(boundary)}</strong>
          <span className="dim">
            {[`; found in ${boundary.levels} levels`, ...boundaryNotes(boundary)].join("; ")}
          </span>
        </p>
      )}
      <DataTable
        label="Levels of the benchmark"
        columns={columns}
        rows={benchmark.levels}
        rowKey={(level) => `${levelName(level)} ${level.started_at}`}
      />
      <ChartGrid>
        <Chart title="Latency by load" {...latencies} empty="No level was completed." />
        <Chart title="Throughput by load" {...rates} empty="No level was completed." />
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
  const kinds = [
    ["E2E", (level: LevelResult) => level.stats.e2e_latency],
    ["TTFT", (level: LevelResult) => level.stats.ttft],
  ] as const;
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
    yAxis: { type: "value", name: "latency (ms)", nameTextStyle: { align: "left" } },
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
    "mean (s)",
    "± 95 % (s)",
    "p50 (s)",
    "p99 (s)",
    "n",
  ];
  return { option, table: { columns, rows } };
}

function throughputChart(benchmark: BenchmarkResult) {
  const groups = [...byScenario(benchmark.levels)];
  const kinds = [
    ["total", (level: LevelResult) => level.mean_total_tokens_throughput_tokens_per_s],
    ["output", (level: LevelResult) => level.mean_output_throughput_tokens_per_s],
  ] as const;
  const option: EChartsOption = {
    grid: { left: 56, right: 16, top: 52, bottom: 40 },
    xAxis: axisOf(benchmark),
    yAxis: {
      type: "value",
      name: "throughput, mean of the level (tokens/s)",
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
    table: { columns: ["scenario", "load", "total (tok/s)", "output (tok/s)", "n"], rows },
  };
}
