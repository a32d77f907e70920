import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMemo } from "react";
import type { EChartsOption } from "echarts";
import type { BenchmarkResult } from "@schemas/messages";
import { Chart } from "@/components/chart/chart";
import { DataTable, type Column } from "@/components/data-table";
import { levelName } from "@/domain/levels";
import { turnLines, type TurnLine } from "@/domain/turns";
import { number, whole } from "@/lib/units";

const ms = (seconds: number | null) => number(seconds === null ? null : seconds * 1000);

const COLUMNS: Column<TurnLine>[] = [
  {
    name: t`Level`,
    sortBy: ({ level }) => levelName(level),
    cell: ({ level }) => levelName(level),
  },
  {
    name: t`Turn`,
    isNumber: true,
    sortBy: ({ turn }) => turn.turn,
    cell: ({ turn }) => whole(turn.turn),
  },
  { name: t`Completed`, isNumber: true, cell: ({ turn }) => whole(turn.num_completed_requests) },
  {
    name: t`Input`,
    unit: t`tokens, mean`,
    title: t`including the conversation so far`,
    isNumber: true,
    sortBy: ({ turn }) => turn.mean_input_tokens,
    cell: ({ turn }) => number(turn.mean_input_tokens),
  },
  {
    name: "TTFT",
    unit: t`ms, mean (p50, p99)`,
    isNumber: true,
    sortBy: ({ turn }) => turn.mean_ttft,
    cell: ({ turn }) => (
      <>
        {ms(turn.mean_ttft)}{" "}
        <span className="dim">
          ({ms(turn.p50_ttft)}, {ms(turn.p99_ttft)})
        </span>
      </>
    ),
  },
  {
    name: "TPOT",
    unit: t`ms, mean`,
    isNumber: true,
    sortBy: ({ turn }) => turn.mean_tpot,
    cell: ({ turn }) => ms(turn.mean_tpot),
  },
  {
    name: "E2E",
    unit: t`ms, mean`,
    isNumber: true,
    sortBy: ({ turn }) => turn.mean_e2e_latency,
    cell: ({ turn }) => ms(turn.mean_e2e_latency),
  },
];

/** Of conversations: what each turn took, which carries all before it. */
export function Turns({ benchmark }: { benchmark: BenchmarkResult }) {
  const lines = useMemo(() => turnLines(benchmark), [benchmark]);
  const chart = useMemo(() => turnsChart(benchmark), [benchmark]);
  if (lines.length === 0) return null;
  return (
    <>
      <h2>
        <Trans>Turns of conversations</Trans>
      </h2>
      <DataTable
        label={t`Turns of conversations`}
        columns={COLUMNS}
        rows={lines}
        rowKey={({ level, turn }) => `${levelName(level)} ${level.started_at} ${turn.turn}`}
      />
      <Chart title={t`Time to first token by turn`} {...chart} empty={t`No turn was completed.`} />
    </>
  );
}

function turnsChart(benchmark: BenchmarkResult) {
  const levels = benchmark.levels.filter((level) => level.turns.length > 0);
  const option: EChartsOption = {
    grid: { left: 56, right: 16, top: 44, bottom: 40 },
    xAxis: {
      type: "value",
      minInterval: 1,
      min: 1,
      name: t`turn of the conversation`,
      nameLocation: "middle",
      nameGap: 26,
    },
    yAxis: {
      type: "value",
      name: t`time to first token, mean (ms)`,
      nameTextStyle: { align: "left" },
    },
    series: levels.map((level) => ({
      type: "line" as const,
      name: levelName(level),
      symbolSize: 6,
      tooltip: { valueFormatter: (value: unknown) => `${number(Number(value))} ms` },
      data: level.turns.map((turn) => [turn.turn, turn.mean_ttft * 1000]),
    })),
  };
  const rows = turnLines(benchmark).map(({ level, turn }) => [
    levelName(level),
    turn.turn,
    turn.mean_ttft,
    turn.p50_ttft,
    turn.p99_ttft,
    turn.mean_input_tokens,
    turn.num_completed_requests,
  ]);
  const columns = ["level", "turn", t`mean (s)`, "p50 (s)", "p99 (s)", t`input tokens, mean`, "n"];
  return { option, table: { columns, rows } };
}
