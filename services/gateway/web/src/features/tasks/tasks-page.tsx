import { Button, MultiSelect, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link } from "react-router";
import { type ExperimentDetail, TaskState, type TaskView } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Meter } from "@/components/meter";
import { Empty, Loaded, Page } from "@/components/page";
import { RunState } from "@/components/run-state";
import { SimulatedBadge } from "@/components/simulated-badge";
import { experimentsOptions } from "@/lib/api/get-experiments";
import { tasksOptions } from "@/lib/api/get-tasks";
import { groupBy } from "@/lib/group-by";
import { useLiveProgress } from "@/lib/live/progress";
import { paths } from "@/lib/paths";
import { moment } from "@/lib/time";
import { percent, UNKNOWN } from "@/lib/units";
import { useNamespace, useSharedSearch, useUrlState } from "@/lib/url-state";
import { gpusText, scoreText, objectiveOf, ofTotal, taskSums } from "./task-sums";

export function TasksPage() {
  const search = useSharedSearch();
  const [namespace] = useNamespace();
  const [states, setStates] = useUrlState("state", "");
  const [words, setWords] = useUrlState("words", "");
  const query = { namespace: namespace || null, state: states || null, limit: 200 };
  const tasks = useQuery(tasksOptions(query));
  const experiments = useQuery(experimentsOptions({ limit: 500, namespace: namespace || null }));
  const byTask = useMemo(
    () => groupBy(experiments.data?.experiments ?? [], (experiment) => experiment.task_id),
    [experiments.data],
  );
  const columns = useColumns(byTask, search);
  const fits = (task: TaskView) =>
    words
      .toLowerCase()
      .split(/\s+/)
      .every((word) =>
        `${task.task_name} ${task.description} ${task.namespace}`.toLowerCase().includes(word),
      );
  return (
    <Page
      title="Tasks"
      actions={
        <>
          <TextInput
            size="xs"
            aria-label="Filter by name, description or namespace"
            placeholder="Filter tasks"
            value={words}
            onChange={(event) => setWords(event.currentTarget.value)}
          />
          <MultiSelect
            size="xs"
            miw={150}
            aria-label="States"
            placeholder={states ? undefined : "All states"}
            clearable
            data={TaskState}
            value={states ? states.split(",") : []}
            onChange={(chosen) => setStates(chosen.join(","))}
          />
          <Button size="xs" component={Link} to={{ pathname: paths.newTask(), search }}>
            New task
          </Button>
        </>
      }
    >
      <Loaded query={tasks}>
        {({ tasks: listed }) => {
          const shown = listed.filter(fits);
          if (shown.length > 0) {
            return (
              <DataTable
                label="Tasks"
                columns={columns}
                rows={shown}
                rowKey={(task) => task.task_id}
              />
            );
          }
          return states || words ? (
            <Empty title="No matching tasks">Remove a filter.</Empty>
          ) : (
            <Empty title="No tasks yet">
              <Link to={{ pathname: paths.newTask(), search }}>Create one</Link>, or run{" "}
              <code>gpusteward run schemas/examples/simulated-quick.json</code>.
            </Empty>
          );
        }}
      </Loaded>
    </Page>
  );
}

function useColumns(byTask: Map<string, ExperimentDetail[]>, search: string): Column<TaskView>[] {
  const live = useLiveProgress();
  return useMemo(
    () => [
      {
        name: "Task",
        sortBy: (task) => task.task_name,
        cell: (task) => (
          <div style={{ minWidth: 160 }}>
            <Link to={{ pathname: paths.task(task.task_id), search }}>{task.task_name}</Link>
            <div className="dim">{task.description}</div>
          </div>
        ),
      },
      {
        name: "State",
        sortBy: (task) => task.state,
        cell: (task) => (
          <StateOfTask task={task} experiments={byTask.get(task.task_id) ?? []} live={live} />
        ),
      },
      {
        name: "Progress",
        unit: "done / running / waiting / failed",
        cell: (task) => <TaskProgress task={task} />,
      },
      {
        name: "Best so far",
        isNumber: true,
        cell: (task) => {
          const experiments = byTask.get(task.task_id) ?? [];
          const best = experiments.find(
            (experiment) => experiment.experiment_id === task.best_experiment_id,
          );
          return best ? (
            <>
              {scoreText(task.objective, best)}
              <div className="dim">{objectiveOf(task.objective, [best]).word}</div>
            </>
          ) : (
            UNKNOWN
          );
        },
      },
      {
        name: "GPUs",
        unit: "per experiment",
        cell: (task) => <TaskGpus experiments={byTask.get(task.task_id) ?? []} />,
      },
      {
        name: "Started",
        sortBy: (task) => task.started_at,
        cell: (task) => moment(task.started_at),
      },
      { name: "Namespace", sortBy: (task) => task.namespace, cell: (task) => task.namespace },
    ],
    [byTask, live, search],
  );
}

function StateOfTask(props: {
  task: TaskView;
  experiments: ExperimentDetail[];
  live: ReturnType<typeof useLiveProgress>;
}) {
  const { task, experiments, live } = props;
  const running = experiments.filter(
    (experiment) => experiment.state === "running" || experiment.state === "starting",
  );
  return (
    <>
      <RunState state={task.state} title={task.reason} />
      {running.slice(0, 3).map((experiment) => {
        const progress = live.get(experiment.experiment_id);
        const phase = progress?.phase ?? experiment.attempts.at(-1)?.phase ?? experiment.state;
        return (
          <div key={experiment.experiment_id} className="dim">
            #{experiment.ordinal} {phase.replaceAll("_", " ")}
            {progress && progress.fraction > 0 ? ` ${percent(progress.fraction * 100)}` : ""}
          </div>
        );
      })}
    </>
  );
}

function TaskProgress({ task }: { task: TaskView }) {
  const sums = taskSums(task);
  const { done, running, waiting, failed, total } = sums;
  const part = (count: number) => count / Math.max(1, total);
  return (
    <div style={{ minWidth: 140 }}>
      {done} / {running} / {waiting} / {failed}
      <span className="dim"> {ofTotal(sums)}</span>
      <Meter
        label={`${done} ${ofTotal(sums)} done, ${failed} failed`}
        parts={[
          { share: part(done), series: 3, title: `${done} done` },
          { share: part(running), series: 1, title: `${running} running` },
          { share: part(failed), series: 2, title: `${failed} failed or cancelled` },
        ]}
      />
    </div>
  );
}

function TaskGpus({ experiments }: { experiments: ExperimentDetail[] }) {
  const text = gpusText(experiments);
  if (!text) return UNKNOWN;
  const monitored = experiments.filter((experiment) => experiment.state === "succeeded").length;
  return (
    <>
      <span className="nowrap">
        {text}{" "}
        {experiments.some((experiment) => experiment.gpu_info?.simulated) && <SimulatedBadge />}
      </span>
      {monitored > 0 && (
        <div className="dim nowrap" title="GPU measurements are stored for these experiments">
          ∿ monitored: {monitored}
        </div>
      )}
    </>
  );
}
