import { Button, Loader, Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { Link, useParams } from "react-router";
import {
  type ExperimentDetail,
  FINISHED_TASK_STATES,
  STOPPED,
  type TaskView,
} from "@schemas/messages";
import { CopyText } from "@/components/copy-text";
import { Facts } from "@/components/facts";
import { Failure, Loaded, Page } from "@/components/page";
import { RunState } from "@/components/run-state";
import { SimulatedBadge } from "@/components/simulated-badge";
import { StateMark } from "@/components/state-mark";
import { TabList } from "@/components/tab-list";
import { taskOptions } from "@/lib/api/get-task";
import { download } from "@/lib/csv";
import { boundaryNotes } from "@/domain/levels";
import { differingNames, parametersText } from "@/domain/parameters";
import { serveCommand } from "@/domain/serve-command";
import { paths } from "@/lib/paths";
import { useMe } from "@/lib/api/get-me";
import { moment } from "@/lib/time";
import { percent, whole } from "@/lib/units";
import { useSharedSearch, useUrlState } from "@/lib/url-state";
import { useChangeTask } from "./api/change-task";
import { experimentsOfTaskOptions } from "./api/get-experiments-of-task";
import { useReport } from "./api/get-report";
import { Definition } from "./components/definition";
import { EventsTable } from "./components/events-table";
import { ExperimentsTable } from "./components/experiments-table";
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

const Compare = lazy(() => import("./compare/compare"));
const Timeline = lazy(() => import("./components/timeline"));

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
          {task.best_experiment_id && <Report task={task} />}
          <Button
            size="xs"
            variant="default"
            component={Link}
            to={`${paths.newTask()}?clone=${task.task_id}${search.replace("?", "&")}`}
          >
            Clone with changes
          </Button>
        </>
      }
    >
      {task.description && <p className="dim">{task.description}</p>}
      {task.reason && <p>{task.reason}</p>}
      <Best task={task} experiments={experiments} />
      <TaskFacts task={task} experiments={experiments} />
      <Tabs value={tab} onChange={(value) => setTab(value ?? "experiments")} keepMounted={false}>
        <TabList chosen={tab}>
          <Tabs.Tab value="experiments">Experiments</Tabs.Tab>
          <Tabs.Tab value="compare">Compare</Tabs.Tab>
          <Tabs.Tab value="timeline">Timeline</Tabs.Tab>
          <Tabs.Tab value="definition">Definition</Tabs.Tab>
          <Tabs.Tab value="events">Events</Tabs.Tab>
        </TabList>
        <Suspense fallback={<Loader size="sm" role="status" aria-label="loading the tab" />}>
          <Tabs.Panel value="experiments">
            <ExperimentsTable task={task} experiments={experiments} />
          </Tabs.Panel>
          <Tabs.Panel value="compare">
            <Compare task={task} experiments={experiments} />
          </Tabs.Panel>
          <Tabs.Panel value="timeline">
            <Timeline task={task} experiments={experiments} />
          </Tabs.Panel>
          <Tabs.Panel value="definition">
            <Definition task={task} />
          </Tabs.Panel>
          <Tabs.Panel value="events">
            <EventsTable taskId={task.task_id} />
          </Tabs.Panel>
        </Suspense>
      </Tabs>
    </Page>
  );
}

/** Best configuration, what made the difference, how to run it: for a wiki, a ticket, a merge request. */
function Report({ task }: { task: TaskView }) {
  const fetched = useReport(task.task_id, (text) =>
    download(`${task.task_name}.md`, text, "text/markdown"),
  );
  return (
    <>
      {fetched.error && <Failure error={fetched.error} />}
      <Button
        size="xs"
        variant="default"
        title="Download as Markdown"
        loading={fetched.isPending}
        onClick={() => fetched.mutate()}
      >
        Report
      </Button>
    </>
  );
}

function Best({ task, experiments }: { task: TaskView; experiments: ExperimentDetail[] }) {
  const search = useSharedSearch();
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
    <section aria-label="best configuration">
      <div>
        <span className="dim">{task.state === "completed" ? "Best" : "Best so far"}: </span>
        <Link to={{ pathname: paths.experiment(best.experiment_id), search }}>
          experiment {best.ordinal}
        </Link>
        , <strong>{text}</strong>, {objectiveOf(task.objective, [best]).word}{" "}
        <strong title={String(best.objective_score)}>{scoreText(task.objective, best)}</strong>
      </div>
      <div className="dim">
        {task.trust?.winner
          ? trustWords(task.trust)
          : [
              ...(lead ? [lead] : []),
              runs === 1 ? "measured once, so its noise is unknown" : `measured ${runs} times`,
            ].join("; ")}
        {otherSettingWords(best, experiments)}
        {boundaryNotes(best.metrics?.boundary).map((note) => `; ${note}`)}
        {best.metrics && `; ${whole(best.metrics.total_completed_requests)} requests`}
        {monitoring && `; GPU samples cover ${percent(monitoring.coverage_percent)}`}{" "}
        {monitoring?.trusted === false && (
          <StateMark kind="attention" word="not trusted" title={monitoring.untrusted_because} />
        )}
      </div>
      <div style={{ margin: "6px 0 12px" }}>
        <CopyText
          text={command ?? `gpusteward show ${best.experiment_id}`}
          label={
            command
              ? "the command that serves the best configuration"
              : "the command that shows the best configuration"
          }
        />
      </div>
    </section>
  );
}

/** "; experiment 2 is not compared: it ran on GPU model A100", of each that ran on something else than the best. */
function otherSettingWords(best: ExperimentDetail, experiments: ExperimentDetail[]): string {
  const measured = experiments.filter((experiment) => experiment.state === "succeeded");
  return measured
    .map((experiment) => [experiment.ordinal, otherSetting(best, experiment)] as const)
    .filter(([, other]) => other !== null)
    .map(([ordinal, other]) => `; experiment ${ordinal} is not compared: it ran on ${other}`)
    .join("");
}

function TaskFacts({ task, experiments }: { task: TaskView; experiments: ExperimentDetail[] }) {
  const sums = taskSums(task);
  return (
    <Facts
      facts={[
        ["succeeded", `${sums.done} ${ofTotal(sums)}`],
        ...(task.finished_at === null
          ? ([
              ["running", whole(sums.running)],
              ["waiting", whole(sums.waiting)],
            ] satisfies [string, string][])
          : []),
        [
          "failed or cancelled",
          sums.failed > 0 ? <StateMark kind="bad" word={whole(sums.failed)} /> : "0",
        ],
        ["GPUs per experiment", gpusText(experiments) ?? "–"],
        ["model", task.task?.model.id_or_path ?? "–"],
        ["namespace", task.namespace],
        ...spendingFacts(task),
        ["started", moment(task.started_at)],
        ["ended", moment(task.finished_at)],
        ...(task.stop_reason
          ? [["stopped", STOPPED[task.stop_reason]] satisfies [string, string]]
          : []),
      ]}
    />
  );
}

function TaskActions({ task }: { task: TaskView }) {
  const me = useMe();
  const change = useChangeTask(task.task_id);
  if (me?.role === "viewer" || FINISHED_TASK_STATES.includes(task.state)) return null;
  return (
    <>
      {change.error && <Failure error={change.error} />}
      <Button
        size="xs"
        variant="default"
        loading={change.isPending}
        onClick={() => change.mutate(task.state === "paused" ? "resume" : "pause")}
      >
        {task.state === "paused" ? "Resume" : "Pause"}
      </Button>
      <Button
        size="xs"
        variant="default"
        color="red"
        disabled={task.cancel_requested}
        onClick={() => {
          if (window.confirm(`Cancel ${task.task_name}? Its running experiments are stopped.`))
            change.mutate("cancel");
        }}
      >
        Cancel
      </Button>
    </>
  );
}
