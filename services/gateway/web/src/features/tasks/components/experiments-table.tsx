import { Checkbox } from "@mantine/core";
import { useMemo } from "react";
import { Link } from "react-router";
import type { ExperimentDetail, TaskView } from "@schemas/messages";
import { Broken } from "@/components/broken";
import { DataTable, type Column } from "@/components/data-table";
import { Progress } from "@/components/progress";
import { SimulatedBadge } from "@/components/simulated-badge";
import { useLiveProgress } from "@/lib/live/progress";
import { brokenBy } from "@/domain/constraints";
import { differingNames, valueText } from "@/domain/parameters";
import { boundaryNotes, bracketText } from "@/domain/levels";
import { paths } from "@/lib/paths";
import { alignedNumber, percent, UNKNOWN, whole } from "@/lib/units";
import { useSharedSearch } from "@/lib/url-state";
import { configurationOf, objectiveOf, rankExperiments } from "../task-sums";
import { MOST_PICKED, usePicked } from "../picked";

interface ExperimentsTableProps {
  task: TaskView;
  experiments: ExperimentDetail[];
}

export function ExperimentsTable({ task, experiments }: ExperimentsTableProps) {
  const search = useSharedSearch();
  const live = useLiveProgress();
  const { picked, toggle } = usePicked();
  const columns = useMemo(() => {
    const names = differingNames(experiments.map((experiment) => experiment.parameters));
    const ranks = new Map(
      rankExperiments(task, experiments).map((experiment, index) => [
        configurationOf(experiment),
        index + 1,
      ]),
    );
    const rankOf = (experiment: ExperimentDetail) => ranks.get(configurationOf(experiment));
    const { word, unit } = objectiveOf(task.objective, experiments);
    const columns: Column<ExperimentDetail>[] = [
      {
        name: "Pick",
        title: `compare two to ${MOST_PICKED} side by side`,
        cell: (experiment) => (
          <Checkbox
            size="xs"
            aria-label={`pick experiment ${experiment.ordinal}`}
            checked={picked.includes(experiment.experiment_id)}
            disabled={picked.length >= MOST_PICKED && !picked.includes(experiment.experiment_id)}
            onChange={() => toggle(experiment.experiment_id)}
          />
        ),
      },
      {
        name: "Rank",
        title: "rank of the configuration: a repeated run has the rank of its first run",
        isNumber: true,
        sortBy: rankOf,
        cell: (experiment) => (
          <span className={experiment.run.repeats === null ? undefined : "dim"}>
            {rankOf(experiment) ?? UNKNOWN}
          </span>
        ),
      },
      {
        name: "#",
        isNumber: true,
        sortBy: (experiment) => experiment.ordinal,
        cell: (experiment) => (
          <Link
            to={{ pathname: paths.experiment(experiment.experiment_id), search }}
            aria-label={`experiment ${experiment.ordinal}`}
          >
            {experiment.ordinal}
          </Link>
        ),
      },
      {
        name: "State",
        sortBy: (experiment) => experiment.state,
        cell: (experiment) => (
          <>
            <Progress
              state={experiment.state}
              phase={experiment.attempts.at(-1)?.phase}
              live={live.get(experiment.experiment_id)}
            />
            <div className="nowrap">
              <Broken constraints={brokenBy(experiment)} />
            </div>
            {experiment.run.repeats !== null && (
              <div className="dim">repeats #{experiment.run.repeats}</div>
            )}
            {experiment.state === "failed" && experiment.failure && (
              <div className="dim">{experiment.failure.kind.replaceAll("_", " ")}</div>
            )}
            {experiment.state === "waiting" && (
              <div className="dim">{experiment.waiting_reasons[0]?.message}</div>
            )}
          </>
        ),
      },
      ...names.map((name): Column<ExperimentDetail> => ({
        name,
        isNumber: experiments.every(
          (experiment) => typeof experiment.parameters[name] === "number",
        ),
        sortBy: (experiment) => {
          const value = experiment.parameters[name];
          return typeof value === "number" ? value : valueText(value);
        },
        cell: (experiment) =>
          name in experiment.parameters ? valueText(experiment.parameters[name]) : UNKNOWN,
      })),
      {
        name: word,
        unit,
        isNumber: true,
        sortBy: (experiment) => experiment.objective_score,
        cell: (experiment) => <Score experiment={experiment} />,
      },
      ...(task.objective === "maximize_throughput"
        ? []
        : [
            {
              name: "Total per GPU",
              unit: "tok/s, max",
              isNumber: true,
              sortBy: (experiment) => experiment.metrics?.max_total_throughput_per_gpu,
              cell: (experiment) => alignedNumber(experiment.metrics?.max_total_throughput_per_gpu),
            } satisfies Column<ExperimentDetail>,
          ]),
      {
        name: "TTFT",
        unit: "ms, mean",
        isNumber: true,
        sortBy: (experiment) => experiment.metrics?.mean_ttft,
        cell: (experiment) => alignedNumber(ms(experiment.metrics?.mean_ttft)),
      },
      {
        name: "TPOT",
        unit: "ms, mean",
        isNumber: true,
        sortBy: (experiment) => experiment.metrics?.mean_tpot,
        cell: (experiment) => alignedNumber(ms(experiment.metrics?.mean_tpot)),
      },
      {
        name: "E2E",
        unit: "ms, p99",
        isNumber: true,
        sortBy: (experiment) => experiment.metrics?.p99_e2e_latency,
        cell: (experiment) => alignedNumber(ms(experiment.metrics?.p99_e2e_latency)),
      },
      {
        name: "Levels",
        unit: "served",
        isNumber: true,
        cell: (experiment) =>
          experiment.metrics
            ? `${experiment.metrics.total_levels - experiment.metrics.failed_levels.length}/${experiment.metrics.total_levels}`
            : UNKNOWN,
      },
      { name: "GPUs", cell: (experiment) => <Gpus experiment={experiment} /> },
    ];
    return columns;
  }, [experiments, live, picked, search, task, toggle]);
  return (
    <DataTable
      label="Experiments"
      empty="No experiments yet."
      columns={columns}
      rows={experiments}
      rowKey={(experiment) => experiment.experiment_id}
      isMarked={(experiment) => experiment.experiment_id === task.best_experiment_id}
      firstOrder={task.finished_at === null ? "" : "Rank"}
    />
  );
}

const ms = (seconds: number | null | undefined) =>
  seconds === null || seconds === undefined ? null : seconds * 1000;

/** Of a search for a load with the bracket that holds it. */
function Score({ experiment }: { experiment: ExperimentDetail }) {
  const boundary = experiment.metrics?.boundary;
  if (!boundary) return alignedNumber(experiment.objective_score);
  const notes = boundaryNotes(boundary);
  return (
    <span className="nowrap" title={notes.join("; ") || undefined}>
      {bracketText(boundary)} {notes.length > 0 && "▲"}
    </span>
  );
}

function Gpus({ experiment }: { experiment: ExperimentDetail }) {
  const { gpu_info: info, gpu_monitoring: monitoring } = experiment;
  if (!info) return UNKNOWN;
  return (
    <span className="nowrap">
      {info.count} <span className="dim">× {info.model}</span>{" "}
      {info.simulated && <SimulatedBadge />}{" "}
      {monitoring && (
        <span
          className={monitoring.trusted === false ? undefined : "dim"}
          title={`GPU measurements are stored: ${whole(monitoring.sample_count)} samples. ${monitoring.untrusted_because}`}
        >
          {monitoring.trusted === false ? "▲" : "∿"} {percent(monitoring.coverage_percent)}
        </span>
      )}
    </span>
  );
}
