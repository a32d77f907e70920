import { t } from "@lingui/core/macro";
import { useMemo } from "react";
import type { Distribution, ExperimentDetail, LevelResult } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Term } from "@/components/term";
import { areWhole, bracketText, levelName, LOAD_UNITS } from "@/domain/levels";
import { valueText } from "@/domain/parameters";
import { number, UNKNOWN } from "@/lib/units";
import type { Compared } from "./charts";
import { isSame, type LatencyName } from "./points";
import classes from "./diff-table.module.css";

interface Line {
  name: string;
  cells: string[];
  /** Wraps, and does not make the other lines wide. */
  isText?: boolean;
}

/** What differs between the picked, and by how much of the first. */
export function DiffTable({ compared }: { compared: Compared }) {
  // In the order of their choice: differences are from the first.
  const chosen = compared.picked.flatMap(
    (id) => compared.experiments.find((experiment) => experiment.experiment_id === id) ?? [],
  );
  const lines = useMemo(() => diffLines(chosen, compared.names), [chosen, compared.names]);
  const columns: Column<Line>[] = [
    {
      name: t`Parameter or metric`,
      cell: (line) => (
        <span className="nowrap">
          <Term>{line.name}</Term>
        </span>
      ),
    },
    ...chosen.map((experiment, index): Column<Line> => ({
      name: `#${experiment.ordinal}${experiment.experiment_id === compared.bestId ? " best" : ""}`,
      unit: index === 0 ? t`differences are from it` : undefined,
      isNumber: true,
      cell: (line) =>
        line.isText ? (
          <div className={classes.text}>{line.cells[index]}</div>
        ) : (
          (line.cells[index] ?? UNKNOWN)
        ),
    })),
  ];
  return (
    <DataTable
      label={t`Picked experiments`}
      columns={columns}
      rows={lines}
      rowKey={(line) => line.name}
    />
  );
}

type Measure = [string, (experiment: ExperimentDetail) => number | null | undefined];

export function diffLines(chosen: ExperimentDetail[], names: string[]): Line[] {
  const [first] = chosen;
  if (!first) return [];
  const parameters = names.map((name) => ({
    name,
    cells: chosen.map((experiment) =>
      name in experiment.parameters ? valueText(experiment.parameters[name]) : UNKNOWN,
    ),
  }));
  const isWhole = areWhole(chosen);
  const plain: Measure[] = [
    [
      t`max total throughput per GPU (tok/s)`,
      (experiment) => experiment.metrics?.max_total_throughput_per_gpu,
    ],
    isWhole
      ? [
          t`max items per second per GPU`,
          (experiment) => experiment.metrics?.max_items_per_second_per_gpu,
        ]
      : [
          t`mean output throughput per GPU (tok/s)`,
          (experiment) => experiment.metrics?.mean_output_throughput_per_gpu,
        ],
    [t`power, mean of all GPUs (W)`, meanPower],
    ...(isWhole
      ? []
      : [
          [
            t`output tokens per joule`,
            (experiment: ExperimentDetail) => experiment.gpu_monitoring?.tokens_per_joule,
          ] satisfies Measure,
        ]),
  ];
  const metrics = plain.map(([name, of]) => ({
    name,
    cells: chosen.map((experiment) => withChange(of(experiment), of(first), experiment === first)),
  }));
  const latencies = LATENCIES.filter(([, of]) => !isWhole || of === "e2e_latency").flatMap(
    ([word, of]) => latencyLines(chosen, word, of),
  );
  const searched = chosen.find((experiment) => experiment.metrics?.boundary)?.metrics?.boundary;
  const loads = searched
    ? [
        {
          name: t`max load (${LOAD_UNITS[searched.load]})`,
          cells: chosen.map((experiment) => bracketText(experiment.metrics?.boundary)),
        },
      ]
    : [];
  return [...parameters, ...loads, ...metrics, ...latencies, ...boundLines(chosen)];
}

const LATENCIES: [string, LatencyName][] = [
  [t`ttft`, "ttft"],
  [t`tpot`, "tpot"],
  [t`e2e latency`, "e2e_latency"],
];

/** What kept each level from being faster, with its evidence. */
function boundLines(chosen: ExperimentDetail[]): Line[] {
  return (chosen[0]?.benchmark?.levels ?? []).map((level) => ({
    name: t`bound at ${levelName(level)}`,
    isText: true,
    cells: chosen.map((experiment) => {
      const bound = sameLoad(experiment, level)?.bound;
      return bound ? `${bound.bound.replaceAll("_", " ")}: ${bound.evidence}` : UNKNOWN;
    }),
  }));
}

const sameLoad = (experiment: ExperimentDetail, level: LevelResult) =>
  experiment.benchmark?.levels.find((one) => levelName(one) === levelName(level));

/** By level, since only means over the same load can be the same within noise. */
function latencyLines(chosen: ExperimentDetail[], word: string, of: LatencyName): Line[] {
  const [first] = chosen;
  return (first?.benchmark?.levels ?? []).map((level) => {
    const meanAtLoad = (experiment: ExperimentDetail): [Distribution, number] | null => {
      const same = sameLoad(experiment, level);
      const stats = same?.stats[of];
      return same && stats ? [stats, same.num_completed_requests] : null;
    };
    const base = meanAtLoad(first as ExperimentDetail);
    return {
      name: t`${word}, mean at ${levelName(level)} (ms)`,
      cells: chosen.map((experiment) => {
        const mean = meanAtLoad(experiment);
        if (!mean) return UNKNOWN;
        if (experiment !== first && base && isSame(...base, ...mean)) {
          return t`${number(mean[0].mean * 1000)} same within noise`;
        }
        return withChange(mean[0].mean * 1000, base && base[0].mean * 1000, experiment === first);
      }),
    };
  });
}

function meanPower(experiment: ExperimentDetail): number | null {
  const powers = Object.values(experiment.gpu_monitoring?.gpu_stats ?? {}).flatMap(
    (of) => of.power_draw_w.mean ?? [],
  );
  return powers.length > 0 ? powers.reduce((sum, power) => sum + power, 0) / powers.length : null;
}

function withChange(
  value: number | null | undefined,
  base: number | null | undefined,
  isFirst: boolean,
): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (isFirst || !base) return number(value);
  const change = (value / base - 1) * 100;
  return `${number(value)} (${change >= 0 ? "+" : "−"}${number(Math.abs(change))} %)`;
}
