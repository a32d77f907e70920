import { Checkbox } from "@mantine/core";
import { useMemo } from "react";
import { Link } from "react-router";
import type { ExperimentDetail, TaskView } from "@schemas/messages";
import { Broken } from "@/components/broken";
import { DataTable, type Column } from "@/components/data-table";
import { Progress } from "@/components/progress";
import { SimulatedBadge } from "@/components/simulated-badge";
import { useLiveProgress } from "@/lib/live-progress";
import { brokenBy } from "@/lib/constraints";
import { differing, valueText } from "@/lib/parameters";
import { boundaryNotes, bracketText } from "@/lib/levels";
import { paths } from "@/lib/paths";
import { measured, percent, UNKNOWN, whole } from "@/lib/units";
import { useSharedSearch } from "@/lib/url-state";
import { configurationOf, objectiveOf, ranked } from "../task-sums";
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
    const names = differing(experiments.map((each) => each.parameters));
    const ranks = new Map(ranked(task, experiments).map((each, index) => [configurationOf(each), index + 1]));
    const rankOf = (each: ExperimentDetail) => ranks.get(configurationOf(each));
    const { word, unit } = objectiveOf(task.objective, experiments);
    const found: Column<ExperimentDetail>[] = [
      {
        name: "Pick",
        title: `two to ${MOST_PICKED} are compared beside each other`,
        cell: (each) => (
          <Checkbox
            size="xs"
            aria-label={`pick experiment ${each.ordinal}`}
            checked={picked.includes(each.experiment_id)}
            disabled={picked.length >= MOST_PICKED && !picked.includes(each.experiment_id)}
            onChange={() => toggle(each.experiment_id)}
          />
        ),
      },
      {
        name: "Rank",
        title: "of its configuration: what measures one again has the rank of its first run",
        isNumber: true,
        sortBy: rankOf,
        cell: (each) => <span className={each.run.repeats === null ? undefined : "dim"}>{rankOf(each) ?? UNKNOWN}</span>,
      },
      {
        name: "#",
        isNumber: true,
        sortBy: (each) => each.ordinal,
        cell: (each) => <Link to={{ pathname: paths.experiment(each.experiment_id), search }} aria-label={`experiment ${each.ordinal}`}>{each.ordinal}</Link>,
      },
      {
        name: "State",
        sortBy: (each) => each.state,
        cell: (each) => (
          <>
            <Progress state={each.state} phase={each.attempts.at(-1)?.phase} live={live.get(each.experiment_id)} />
            <div className="nowrap">
              <Broken constraints={brokenBy(each)} />
            </div>
            {each.run.repeats !== null && <div className="dim">repeats #{each.run.repeats}</div>}
            {each.state === "failed" && each.failure && <div className="dim">{each.failure.kind.replaceAll("_", " ")}</div>}
            {each.state === "waiting" && <div className="dim">{each.waiting_reasons[0]?.message}</div>}
          </>
        ),
      },
      ...names.map((name): Column<ExperimentDetail> => ({
        name,
        isNumber: experiments.every((each) => typeof each.parameters[name] === "number"),
        sortBy: (each) => {
          const value = each.parameters[name];
          return typeof value === "number" ? value : valueText(value);
        },
        cell: (each) => (name in each.parameters ? valueText(each.parameters[name]) : UNKNOWN),
      })),
      { name: word, unit, isNumber: true, sortBy: (each) => each.objective_score, cell: (each) => <Score experiment={each} /> },
      ...(task.objective === "maximize_throughput"
        ? []
        : [
            {
              name: "Total per GPU",
              unit: "tok/s, max",
              isNumber: true,
              sortBy: (each) => each.metrics?.max_total_throughput_per_gpu,
              cell: (each) => measured(each.metrics?.max_total_throughput_per_gpu),
            } satisfies Column<ExperimentDetail>,
          ]),
      { name: "TTFT", unit: "ms, mean", isNumber: true, sortBy: (each) => each.metrics?.mean_ttft, cell: (each) => measured(ms(each.metrics?.mean_ttft)) },
      { name: "TPOT", unit: "ms, mean", isNumber: true, sortBy: (each) => each.metrics?.mean_tpot, cell: (each) => measured(ms(each.metrics?.mean_tpot)) },
      { name: "E2E", unit: "ms, p99", isNumber: true, sortBy: (each) => each.metrics?.p99_e2e_latency, cell: (each) => measured(ms(each.metrics?.p99_e2e_latency)) },
      {
        name: "Levels",
        unit: "served",
        isNumber: true,
        cell: (each) =>
          each.metrics ? `${each.metrics.total_levels - each.metrics.failed_levels.length}/${each.metrics.total_levels}` : UNKNOWN,
      },
      { name: "GPUs", cell: (each) => <Gpus experiment={each} /> },
    ];
    return found;
  }, [experiments, live, picked, search, task, toggle]);
  return (
    <DataTable
      label="Experiments"
      columns={columns}
      rows={experiments}
      rowKey={(each) => each.experiment_id}
      isMarked={(each) => each.experiment_id === task.best_experiment_id}
      firstOrder={task.finished_at === null ? "" : "Rank"}
    />
  );
}

const ms = (seconds: number | null | undefined) =>
  seconds === null || seconds === undefined ? null : seconds * 1000;

/** Of a search for a load with the bracket that holds it. */
function Score({ experiment }: { experiment: ExperimentDetail }) {
  const boundary = experiment.metrics?.boundary;
  if (!boundary) return measured(experiment.objective_score);
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
      {info.count} <span className="dim">× {info.model}</span> {info.simulated && <SimulatedBadge />}{" "}
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
