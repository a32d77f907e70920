import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Suspense, type ReactNode } from "react";
import { latePart } from "@/lib/parts";
import { Link, useParams } from "react-router";
import { type ExperimentDetail, STOPPED, type TaskView } from "@schemas/messages";
import { CopyText } from "@/components/copy-text";
import { Facts } from "@/components/facts";
import { Loaded, Page } from "@/components/page";
import { RunState } from "@/components/run-state";
import { SimulatedBadge } from "@/components/simulated-badge";
import { StateMark } from "@/components/state-mark";
import { Tabbed } from "@/components/tabbed";
import { taskOptions } from "@/lib/api/get-task";
import { boundaryNotes } from "@/domain/levels";
import { differingNames, parametersText } from "@/domain/parameters";
import { serveCommand } from "@/domain/serve-command";
import { paths } from "@/lib/paths";
import { duration, moment, secondsSince, useNow } from "@/lib/time";
import { percent, whole } from "@/lib/units";
import { useSharedSearch, useUrlState } from "@/lib/url-state";
import { experimentsOfTaskOptions } from "./api/get-experiments-of-task";
import { EventsTable } from "./components/events-table";
import { ExperimentsTable } from "./components/experiments-table";
import { LiveSpeed } from "./components/live-speed";
import { TaskActions } from "./components/task-actions";
import { TaskProgress } from "./components/task-progress";
import {
  gpusText,
  leadWords,
  objectiveOf,
  ofTotal,
  otherSetting,
  rankExperiments,
  scoreText,
  spendingFacts,
  taskSums,
} from "./task-sums";
import { trustWords } from "./trust-words";
import classes from "./task-page.module.css";

const Compare = latePart(() => import("./compare/compare"));
const Definition = latePart(() => import("./components/definition"));
const Report = latePart(() => import("./components/report"));
const UseConfiguration = latePart(() => import("./components/use-configuration"));
const Timeline = latePart(() => import("./components/timeline"));

export function TaskPage() {
  const { taskId = "" } = useParams();
  const task = useQuery(taskOptions(taskId));
  const experiments = useQuery(experimentsOfTaskOptions(taskId));
  return (
    <Loaded query={task}>
      {(view) => (
        <Loaded query={experiments}>
          {(all) => <TaskContent task={view} experiments={all} />}
        </Loaded>
      )}
    </Loaded>
  );
}

function TaskContent({ task, experiments }: { task: TaskView; experiments: ExperimentDetail[] }) {
  const [tab, setTab] = useUrlState("tab", "experiments");
  const search = useSharedSearch();
  return (
    <Page
      title={task.task_name}
      aside={
        <>
          <RunState state={task.state} title={task.reason} />
          {experiments.some((experiment) => experiment.gpu_info?.simulated) && <SimulatedBadge />}
        </>
      }
      actions={
        <>
          <TaskActions task={task} />
          <Button
            size="xs"
            variant="default"
            component={Link}
            to={`${paths.newTask()}?clone=${task.task_id}${search.replace("?", "&")}`}
          >
            <Trans>Clone with changes</Trans>
          </Button>
        </>
      }
    >
      {task.description && <p className="dim">{task.description}</p>}
      {task.reason && <p>{task.reason}</p>}
      <Best task={task} experiments={experiments} />
      {task.finished_at === null && <TaskProgress task={task} />}
      <TaskFacts task={task} experiments={experiments} />
      <Tabbed
        tabs={[
          {
            value: "experiments",
            word: t`Experiments`,
            content: <ExperimentsTable task={task} experiments={experiments} />,
          },
          {
            value: "compare",
            word: t`Compare`,
            content: <Compare task={task} experiments={experiments} />,
          },
          {
            value: "timeline",
            word: t`Timeline`,
            content: <Timeline task={task} experiments={experiments} />,
          },
          { value: "report", word: t`Report`, content: <Report task={task} /> },
          { value: "definition", word: t`Definition`, content: <Definition task={task} /> },
          { value: "events", word: t`Events`, content: <EventsTable taskId={task.task_id} /> },
        ]}
        chosen={tab}
        onChoose={setTab}
      />
    </Page>
  );
}

function Best({ task, experiments }: { task: TaskView; experiments: ExperimentDetail[] }) {
  const search = useSharedSearch();
  const [used, setUsed] = useUrlState("use", "");
  const [best, second] = rankExperiments(task, experiments);
  if (!best || best.experiment_id !== task.best_experiment_id) return null;
  const names = differingNames(experiments.map((experiment) => experiment.parameters));
  const text = parametersText(best.parameters, names);
  const command = serveCommand(best.engine);
  const monitoring = best.gpu_monitoring;
  const lead = second && leadWords(task.objective, best, second);
  const runs = experiments.filter(
    (experiment) =>
      experiment.state === "succeeded" &&
      parametersText(experiment.parameters) === parametersText(best.parameters),
  ).length;
  return (
    <section aria-label={t`best configuration`}>
      <div>
        <span className="dim">{task.state === "completed" ? t`Best` : t`Best so far`}: </span>
        <Link to={{ pathname: paths.experiment(best.experiment_id), search }}>
          <Trans>experiment {best.ordinal}</Trans>
        </Link>
        , <strong>{text}</strong>, {objectiveOf(task.objective, [best]).word}{" "}
        <strong title={String(best.objective_score)}>{scoreText(task.objective, best)}</strong>
      </div>
      <div className="dim">
        {task.trust?.winner
          ? trustWords(task.trust)
          : [
              ...(lead ? [lead] : []),
              runs === 1 ? t`measured once, so its noise is unknown` : t`measured ${runs} times`,
            ].join("; ")}
        {otherSettingWords(best, experiments)}
        {boundaryNotes(best.metrics?.boundary).map((note) => `; ${note}`)}
        {best.metrics && t`; ${whole(best.metrics.total_completed_requests)} requests`}
        {monitoring && t`; GPU samples cover ${percent(monitoring.coverage_percent)}`}{" "}
        {monitoring?.trusted === false && (
          <StateMark kind="attention" word={t`not trusted`} title={monitoring.untrusted_because} />
        )}
      </div>
      <div className={classes.use}>
        {command && (
          <CopyText text={command} label={t`the command that serves the best configuration`} />
        )}
        <Button size="xs" onClick={() => setUsed("yes")}>
          <Trans>Use this configuration</Trans>
        </Button>
      </div>
      {used && (
        <Suspense fallback={null}>
          <UseConfiguration task={task} best={best} onClose={() => setUsed("")} />
        </Suspense>
      )}
    </section>
  );
}

/** "; experiment 2 is not compared: it ran on GPU model A100", of each that ran on something else than the best. */
function otherSettingWords(best: ExperimentDetail, experiments: ExperimentDetail[]): string {
  const measured = experiments.filter((experiment) => experiment.state === "succeeded");
  return measured
    .map((experiment) => [experiment.ordinal, otherSetting(best, experiment)] as const)
    .filter(([, other]) => other !== null)
    .map(([ordinal, other]) => t`; experiment ${ordinal} is not compared: it ran on ${other ?? ""}`)
    .join("");
}

function TaskFacts({ task, experiments }: { task: TaskView; experiments: ExperimentDetail[] }) {
  const sums = taskSums(task);
  const now = useNow();
  const isOver = task.finished_at !== null;
  const elapsed = secondsSince(task.started_at, isOver ? Date.parse(task.finished_at ?? "") : now);
  return (
    <Facts
      facts={[
        [t`succeeded`, `${sums.done} ${ofTotal(sums)}`],
        ...(task.finished_at === null
          ? ([
              [t`running`, whole(sums.running)],
              [t`waiting`, whole(sums.waiting)],
            ] satisfies [string, string][])
          : []),
        [
          t`failed or cancelled`,
          sums.failed > 0 ? <StateMark kind="bad" word={whole(sums.failed)} /> : "0",
        ],
        [t`GPUs per experiment`, gpusText(experiments) ?? "–"],
        [t`model`, task.task?.model.id_or_path ?? "–"],
        [t`namespace`, task.namespace],
        ...spendingFacts(task),
        ...(isOver
          ? []
          : ([[t`speed now`, <LiveSpeed key="speed" experiments={experiments} />]] satisfies [
              string,
              ReactNode,
            ][])),
        [t`started`, moment(task.started_at)],
        [isOver ? t`took` : t`elapsed`, duration(elapsed)],
        [t`ended`, moment(task.finished_at)],
        ...(task.stop_reason
          ? [[t`stopped`, STOPPED[task.stop_reason]] satisfies [string, string]]
          : []),
      ]}
    />
  );
}
