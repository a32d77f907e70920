import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, MultiSelect, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link } from "react-router";
import { type ExperimentDetail, TaskState, type TaskView } from "@schemas/messages";
import { codeWord } from "@/domain/code-words";
import { DataTable, type Column } from "@/components/data-table";
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
import { SavedViews } from "./components/saved-views";
import { TaskProgress } from "./components/task-progress";
import { gpusText, scoreText, objectiveOf } from "./task-sums";

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
  const simulated = (experiments.data?.experiments ?? []).flatMap(({ gpu_info: info }) =>
    info ? [info.simulated] : [],
  );
  const isMixed = new Set(simulated).size > 1;
  const columns = useColumns(byTask, search, isMixed);
  const fits = (task: TaskView) =>
    words
      .toLowerCase()
      .split(/\s+/)
      .every((word) =>
        `${task.task_name} ${task.description} ${task.namespace}`.toLowerCase().includes(word),
      );
  return (
    <Page
      title={t`Tasks`}
      aside={!isMixed && simulated[0] && <SimulatedBadge />}
      actions={
        <>
          <TextInput
            size="xs"
            aria-label={t`Filter by name, description or namespace`}
            placeholder={t`Filter tasks`}
            value={words}
            onChange={(event) => setWords(event.currentTarget.value)}
          />
          <MultiSelect
            size="xs"
            miw={150}
            aria-label={t`States`}
            placeholder={states ? undefined : t`All states`}
            clearable
            data={TaskState}
            value={states ? states.split(",") : []}
            onChange={(chosen) => setStates(chosen.join(","))}
          />
          <SavedViews page="tasks" />
          <Button
            size="xs"
            variant="default"
            component={Link}
            to={{ pathname: paths.measure(), search }}
          >
            <Trans>Measure a server</Trans>
          </Button>
          <Button
            size="xs"
            variant="default"
            component={Link}
            to={{ pathname: paths.leaderboard(), search }}
          >
            <Trans>Leaderboard</Trans>
          </Button>
          <Button
            size="xs"
            variant="default"
            component={Link}
            to={{ pathname: paths.comparison(), search }}
          >
            <Trans>Compare</Trans>
          </Button>
          <Button size="xs" component={Link} to={{ pathname: paths.newTask(), search }}>
            <Trans>New task</Trans>
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
                label={t`Tasks`}
                columns={columns}
                rows={shown}
                rowKey={(task) => task.task_id}
                rowLink={(task) => ({ pathname: paths.task(task.task_id), search })}
              />
            );
          }
          return states || words ? (
            <Empty title={t`No matching tasks`}>
              <Trans>Remove a filter.</Trans>
            </Empty>
          ) : (
            <Empty title={t`No tasks yet`}>
              <Trans>
                <Link to={{ pathname: paths.newTask(), search }}>Create one</Link>, or run{" "}
                <code>gpusteward run schemas/examples/simulated-quick.json</code>.
              </Trans>
            </Empty>
          );
        }}
      </Loaded>
    </Page>
  );
}

function useColumns(
  byTask: Map<string, ExperimentDetail[]>,
  search: string,
  isMixed: boolean,
): Column<TaskView>[] {
  const live = useLiveProgress();
  return useMemo(
    () => [
      {
        name: t`Task`,
        sortBy: (task) => task.task_name,
        cell: (task) => (
          <div style={{ minWidth: 160 }}>
            <Link to={{ pathname: paths.task(task.task_id), search }}>{task.task_name}</Link>
            <div className="dim">{task.description}</div>
          </div>
        ),
      },
      {
        name: t`State`,
        sortBy: (task) => task.state,
        cell: (task) => (
          <StateOfTask task={task} experiments={byTask.get(task.task_id) ?? []} live={live} />
        ),
      },
      {
        name: t`Progress`,
        unit: t`done / running / waiting / failed`,
        cell: (task) => <TaskProgress task={task} />,
      },
      {
        name: t`Best so far`,
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
        unit: t`per experiment`,
        cell: (task) => <TaskGpus experiments={byTask.get(task.task_id) ?? []} isMixed={isMixed} />,
      },
      {
        name: t`Started`,
        sortBy: (task) => task.started_at,
        cell: (task) => moment(task.started_at),
      },
      { name: t`Namespace`, sortBy: (task) => task.namespace, cell: (task) => task.namespace },
    ],
    [byTask, isMixed, live, search],
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
            #{experiment.ordinal} {codeWord(phase)}
            {progress && progress.fraction > 0 ? ` ${percent(progress.fraction * 100)}` : ""}
          </div>
        );
      })}
    </>
  );
}

interface TaskGpusProps {
  experiments: ExperimentDetail[];
  /** Some are simulated and some are not: it is said of each. */
  isMixed: boolean;
}

function TaskGpus({ experiments, isMixed }: TaskGpusProps) {
  const text = gpusText(experiments);
  if (!text) return UNKNOWN;
  const monitored = experiments.filter((experiment) => experiment.state === "succeeded").length;
  return (
    <>
      <span className="nowrap">
        {text}{" "}
        {isMixed && experiments.some(({ gpu_info: info }) => info?.simulated) && <SimulatedBadge />}
      </span>
      {monitored > 0 && (
        <div className="dim nowrap" title={t`GPU measurements are stored for these experiments`}>
          <Trans>∿ monitored: {monitored}</Trans>
        </div>
      )}
    </>
  );
}
