import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { TaskView } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Loaded } from "@/components/page";
import { taskOptions } from "@/lib/api/get-task";
import { tasksOptions } from "@/lib/api/get-tasks";
import { moment } from "@/lib/time";
import { UNKNOWN } from "@/lib/units";
import { useUrlState } from "@/lib/url-state";
import { fieldsThatDiffer, type FieldDifference } from "../file-differences";

const MOST_TASKS = 200;

export function DefinitionDiff({ task }: { task: TaskView }) {
  const [otherId, setOtherId] = useUrlState("against", "");
  const tasks = useQuery(tasksOptions({ namespace: null, state: null, limit: MOST_TASKS }));
  const choices = (tasks.data?.tasks ?? [])
    .filter((other) => other.task_id !== task.task_id)
    .map((other) => ({
      value: other.task_id,
      label: `${other.task_name}, ${moment(other.created_at)}`,
    }));
  return (
    <section aria-label={t`compare with another task`}>
      <h2>
        <Trans>Compare with another task</Trans>
      </h2>
      <Select
        size="xs"
        maw={420}
        searchable
        clearable
        aria-label={t`The other task`}
        placeholder={t`Choose a task`}
        nothingFoundMessage={t`No other task`}
        data={choices}
        value={otherId || null}
        onChange={(value) => setOtherId(value ?? "")}
      />
      {otherId && <Differences task={task} otherId={otherId} />}
    </section>
  );
}

function Differences({ task, otherId }: { task: TaskView; otherId: string }) {
  const other = useQuery(taskOptions(otherId));
  return <Loaded query={other}>{(view) => <DifferencesTable task={task} other={view} />}</Loaded>;
}

function DifferencesTable({ task, other }: { task: TaskView; other: TaskView }) {
  const rows = useMemo(() => fieldsThatDiffer(task.task, other.task), [other.task, task.task]);
  const columns: Column<FieldDifference>[] = [
    { name: t`Field`, cell: ({ path }) => <code>{path}</code> },
    { name: task.task_name, isLong: true, cell: ({ here }) => here ?? UNKNOWN },
    {
      name: other.task_name === task.task_name ? t`${other.task_name}, other` : other.task_name,
      isLong: true,
      cell: ({ there }) => there ?? UNKNOWN,
    },
  ];
  return (
    <DataTable
      label={t`Fields that differ`}
      empty={t`Both tasks have the same definition.`}
      columns={columns}
      rows={rows}
      rowKey={({ path }) => path}
    />
  );
}
