import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Checkbox } from "@mantine/core";
import { useMemo } from "react";
import { Link } from "react-router";
import type { ExperimentDetail, TaskView } from "@schemas/messages";
import { Broken } from "@/components/broken";
import { DataTable, type Column } from "@/components/data-table";
import { Progress } from "@/components/progress";
import { SimulatedBadge } from "@/components/simulated-badge";
import { StateMark } from "@/components/state-mark";
import { useLiveProgress } from "@/lib/live/progress";
import { brokenBy } from "@/domain/constraints";
import { differingNames, valueText } from "@/domain/parameters";
import { areWhole, boundaryNotes, bracketText } from "@/domain/levels";
import { paths } from "@/lib/paths";
import { alignedNumber, number, percent, UNKNOWN, whole } from "@/lib/units";
import { useSharedSearch, useUrlState } from "@/lib/url-state";
import { configurationsOf, type Configuration } from "../configurations";
import { configurationOf, objectiveOf, rankExperiments } from "../task-sums";
import { MOST_PICKED, usePicked } from "../picked";
import { ColumnPicker, useHiddenColumns } from "./column-picker";
import { SavedViews } from "./saved-views";
import classes from "./experiments-table.module.css";

interface ExperimentsTableProps {
  task: TaskView;
  experiments: ExperimentDetail[];
}

/** A configuration, or one of its runs below it. */
interface Row {
  experiment: ExperimentDetail;
  configuration: Configuration;
  isRun: boolean;
}

const FIXED_COLUMNS = [t`Pick`, "#"];
const NO_ROWS: Row[] = [];

export function ExperimentsTable({ task, experiments }: ExperimentsTableProps) {
  const search = useSharedSearch();
  const live = useLiveProgress();
  const { picked, toggle } = usePicked();
  const { hidden, toggle: toggleColumn, showAll } = useHiddenColumns();
  const [unfolded, setUnfolded] = useUrlState("runs", "");
  const rows = useMemo(
    () =>
      configurationsOf(task, experiments).map((configuration): Row => ({
        experiment: configuration.first,
        configuration,
        isRun: false,
      })),
    [experiments, task],
  );
  const isUnfolded = (row: Row) => unfolded.split(",").includes(String(row.experiment.ordinal));
  const columns = useMemo(() => {
    const open = unfolded ? unfolded.split(",") : [];
    const fold = (ordinal: number) => {
      const name = String(ordinal);
      setUnfolded(
        (open.includes(name) ? open.filter((other) => other !== name) : [...open, name]).join(","),
      );
    };
    const names = differingNames(experiments.map((experiment) => experiment.parameters));
    const ranks = new Map(
      rankExperiments(task, experiments).map((experiment, index) => [
        configurationOf(experiment),
        index + 1,
      ]),
    );
    const rankOf = (experiment: ExperimentDetail) => ranks.get(configurationOf(experiment));
    const { word, unit } = objectiveOf(task.objective, experiments);
    const simulated = experiments.flatMap(({ gpu_info: info }) => info?.simulated ?? []);
    const isMixed = new Set(simulated).size > 1;
    const columns: Column<Row>[] = [
      {
        name: t`Pick`,
        title: t`compare two to ${MOST_PICKED} side by side`,
        cell: ({ experiment }) => (
          <Checkbox
            size="xs"
            className={classes.pick}
            aria-label={t`pick experiment ${experiment.ordinal}`}
            checked={picked.includes(experiment.experiment_id)}
            disabled={picked.length >= MOST_PICKED && !picked.includes(experiment.experiment_id)}
            onChange={() => toggle(experiment.experiment_id)}
          />
        ),
      },
      {
        name: t`Rank`,
        title: t`rank of the configuration: a repeated run has the rank of its first run`,
        isNumber: true,
        sortBy: ({ experiment }) => rankOf(experiment),
        cell: ({ experiment, isRun }) => (isRun ? "" : (rankOf(experiment) ?? UNKNOWN)),
      },
      {
        name: "#",
        isNumber: true,
        sortBy: ({ experiment }) => experiment.ordinal,
        cell: ({ experiment }) => (
          <Link
            className={classes.number}
            to={{ pathname: paths.experiment(experiment.experiment_id), search }}
            aria-label={t`experiment ${experiment.ordinal}`}
          >
            {experiment.ordinal}
          </Link>
        ),
      },
      {
        name: t`State`,
        sortBy: ({ experiment }) => experiment.state,
        cell: ({ experiment, configuration, isRun }) => (
          <>
            <Progress
              state={experiment.state}
              phase={experiment.attempts.at(-1)?.phase}
              live={live.get(experiment.experiment_id)}
            />
            <div className="nowrap">
              <Broken constraints={brokenBy(experiment)} />
            </div>
            {isRun ? (
              <RunMark experiment={experiment} configuration={configuration} />
            ) : (
              configuration.runs.length > 1 && (
                <Runs
                  configuration={configuration}
                  isOpen={open.includes(String(experiment.ordinal))}
                  onFold={() => fold(experiment.ordinal)}
                />
              )
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
      ...names.map((name): Column<Row> => ({
        name,
        isNumber: experiments.every(
          (experiment) => typeof experiment.parameters[name] === "number",
        ),
        sortBy: ({ experiment }) => {
          const value = experiment.parameters[name];
          return typeof value === "number" ? value : valueText(value);
        },
        cell: ({ experiment }) =>
          name in experiment.parameters ? valueText(experiment.parameters[name]) : UNKNOWN,
      })),
      {
        name: word,
        unit,
        isNumber: true,
        sortBy: ({ configuration, experiment }) =>
          configuration.counted > 1 ? configuration.meanScore : experiment.objective_score,
        cell: ({ experiment, configuration, isRun }) =>
          isRun || configuration.counted < 2 ? (
            <Score
              experiment={experiment}
              isDim={isRun && configuration.setAside.has(experiment.ordinal)}
            />
          ) : (
            <MeanScore configuration={configuration} />
          ),
      },
      ...(task.objective === "maximize_throughput"
        ? []
        : [
            {
              name: t`Total per GPU`,
              unit: t`tok/s, max`,
              isNumber: true,
              sortBy: ({ experiment }) => experiment.metrics?.max_total_throughput_per_gpu,
              cell: ({ experiment }) =>
                alignedNumber(experiment.metrics?.max_total_throughput_per_gpu),
            } satisfies Column<Row>,
          ]),
      ...(areWhole(experiments)
        ? [
            {
              name: t`Items`,
              unit: t`per s, mean`,
              title: t`inputs or documents, of which each request had several`,
              isNumber: true,
              sortBy: ({ experiment }) => experiment.metrics?.mean_items_per_second,
              cell: ({ experiment }) => alignedNumber(experiment.metrics?.mean_items_per_second),
            } satisfies Column<Row>,
          ]
        : ([
            {
              name: "TTFT",
              unit: t`ms, mean`,
              isNumber: true,
              sortBy: ({ experiment }) => experiment.metrics?.mean_ttft,
              cell: ({ experiment }) => alignedNumber(ms(experiment.metrics?.mean_ttft)),
            },
            {
              name: "TPOT",
              unit: t`ms, mean`,
              isNumber: true,
              sortBy: ({ experiment }) => experiment.metrics?.mean_tpot,
              cell: ({ experiment }) => alignedNumber(ms(experiment.metrics?.mean_tpot)),
            },
          ] satisfies Column<Row>[])),
      {
        name: "E2E",
        unit: t`ms, p99`,
        isNumber: true,
        sortBy: ({ experiment }) => experiment.metrics?.p99_e2e_latency,
        cell: ({ experiment }) => alignedNumber(ms(experiment.metrics?.p99_e2e_latency)),
      },
      {
        name: t`Levels`,
        unit: t`served`,
        isNumber: true,
        cell: ({ experiment }) =>
          experiment.metrics
            ? `${experiment.metrics.total_levels - experiment.metrics.failed_levels.length}/${experiment.metrics.total_levels}`
            : UNKNOWN,
      },
      {
        name: "GPUs",
        cell: ({ experiment }) => <Gpus experiment={experiment} isMixed={isMixed} />,
      },
    ];
    return columns;
  }, [experiments, live, picked, search, setUnfolded, task, toggle, unfolded]);
  const isBest = ({ experiment }: Row) => experiment.experiment_id === task.best_experiment_id;
  return (
    <>
      {rows.length > 0 && (
        <div className={classes.tools}>
          <SavedViews page="task" />
          <ColumnPicker
            names={columns
              .map((column) => column.name)
              .filter((name) => !FIXED_COLUMNS.includes(name))}
            hidden={hidden}
            toggle={toggleColumn}
            showAll={showAll}
          />
        </div>
      )}
      <DataTable
        label={t`Experiments`}
        empty={t`No experiments yet.`}
        columns={columns.filter((column) => !hidden.includes(column.name))}
        rows={rows}
        rowKey={(row) => `${row.isRun ? "run" : "configuration"} ${row.experiment.experiment_id}`}
        below={(row) =>
          isUnfolded(row)
            ? row.configuration.runs.map((experiment) => ({ ...row, experiment, isRun: true }))
            : NO_ROWS
        }
        isMarked={(row) =>
          isBest(row) ||
          (!row.isRun &&
            row.configuration.runs.some((run) => run.experiment_id === task.best_experiment_id))
        }
        firstOrder={task.finished_at === null ? "" : t`Rank`}
        rowLink={({ experiment }) => ({
          pathname: paths.experiment(experiment.experiment_id),
          search,
        })}
      />
    </>
  );
}

/** "3 runs, 1 set aside": unfolds them. */
function Runs(props: { configuration: Configuration; isOpen: boolean; onFold: () => void }) {
  const { configuration, isOpen, onFold } = props;
  const { runs, setAside, first } = configuration;
  return (
    <button type="button" className={classes.fold} aria-expanded={isOpen} onClick={onFold}>
      <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span>{" "}
      {setAside.size > 0
        ? t`${runs.length} runs, ${setAside.size} set aside`
        : t`${runs.length} runs`}
      <span className="visually-hidden"> {t`of configuration ${first.ordinal}`}</span>
    </button>
  );
}

const ROLE_WORDS: Record<ExperimentDetail["run"]["role"], string> = {
  search: t`first run`,
  repeat: t`repeat`,
  replay: t`replay`,
  screen: t`screening`,
};

function RunMark({
  experiment,
  configuration,
}: {
  experiment: ExperimentDetail;
  configuration: Configuration;
}) {
  const because = configuration.setAside.get(experiment.ordinal);
  return (
    <div className="dim">
      {ROLE_WORDS[experiment.run.role]}
      {because !== undefined && (
        <>
          {" "}
          <StateMark kind="attention" word={t`set aside`} />: {because}
        </>
      )}
    </div>
  );
}

function MeanScore({ configuration }: { configuration: Configuration }) {
  const { meanScore, spreadPercent, counted } = configuration;
  return (
    <>
      {alignedNumber(meanScore)}
      <div className="dim nowrap" title={t`standard deviation of the runs that count`}>
        <Trans>
          {spreadPercent === null ? "" : `± ${number(spreadPercent)} % `}mean of {counted}
        </Trans>
      </div>
    </>
  );
}

const ms = (seconds: number | null | undefined) =>
  seconds === null || seconds === undefined ? null : seconds * 1000;

/** Of a search for a load with the bracket that holds it. */
function Score({ experiment, isDim = false }: { experiment: ExperimentDetail; isDim?: boolean }) {
  const boundary = experiment.metrics?.boundary;
  if (!boundary)
    return (
      <span className={isDim ? classes.aside : undefined}>
        {alignedNumber(experiment.objective_score)}
      </span>
    );
  const notes = boundaryNotes(boundary);
  return (
    <span className="nowrap" title={notes.join("; ") || undefined}>
      {bracketText(boundary)} {notes.length > 0 && "▲"}
    </span>
  );
}

/** Where all are simulated the page says it once, in its title. */
function Gpus({ experiment, isMixed }: { experiment: ExperimentDetail; isMixed: boolean }) {
  const { gpu_info: info, gpu_monitoring: monitoring } = experiment;
  if (!info) return UNKNOWN;
  return (
    <span className="nowrap">
      {info.count} <span className="dim">× {info.model}</span>{" "}
      {info.simulated && isMixed && <SimulatedBadge />}{" "}
      {monitoring && (
        <span
          className={monitoring.trusted === false ? undefined : "dim"}
          title={t`GPU measurements are stored: ${whole(monitoring.sample_count)} samples. ${monitoring.untrusted_because}`}
        >
          {monitoring.trusted === false ? "▲" : "∿"} {percent(monitoring.coverage_percent)}
        </span>
      )}
    </span>
  );
}
