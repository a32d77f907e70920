import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Checkbox, Group, Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import type { ComparedExperiment, ComparedRow, ExperimentComparison } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Empty, Loaded, Page } from "@/components/page";
import { StateMark } from "@/components/state-mark";
import { experimentsOptions } from "@/lib/api/get-experiments";
import { paths } from "@/lib/paths";
import { UNKNOWN } from "@/lib/units";
import { useNamespace, useSharedSearch, useUrlState } from "@/lib/url-state";
import { comparisonOptions, LEAST_COMPARED, MOST_COMPARED } from "./api/get-comparison";
import { changeText, isCaution, KIND_WORDS, rowName } from "./comparison-words";

/** Experiments of any tasks side by side; what differs beside the parameters is marked. */
export function ComparisonPage() {
  const [text, setText] = useUrlState("experiments", "");
  const ids = text ? text.split(",") : [];
  const query = useQuery(comparisonOptions(ids));
  return (
    <Page title={t`Compare experiments`}>
      <AddExperiment ids={ids} onAdd={(id) => setText([...ids, id].join(","))} />
      {ids.length < LEAST_COMPARED ? (
        <Empty title={t`Nothing to compare yet`}>
          <Trans>Choose 2 to {MOST_COMPARED} experiments of any tasks above.</Trans>
        </Empty>
      ) : (
        <Loaded query={query}>
          {(comparison) => (
            <Comparison
              comparison={comparison}
              onRemove={(id) => setText(ids.filter((other) => other !== id).join(","))}
            />
          )}
        </Loaded>
      )}
    </Page>
  );
}

function AddExperiment({ ids, onAdd }: { ids: string[]; onAdd: (id: string) => void }) {
  const [namespace] = useNamespace();
  const query = { limit: 500, state: "succeeded", namespace: namespace || null };
  const experiments = useQuery(experimentsOptions(query)).data?.experiments ?? [];
  const data = experiments
    .filter(({ experiment_id: id }) => !ids.includes(id))
    .map(({ experiment_id: id, task_name: task, ordinal, engine }) => ({
      value: id,
      label: `${task} #${ordinal} · ${engine.model} · ${engine.engine} · ${id.slice(-6)}`,
    }));
  return (
    <Select
      searchable
      limit={100}
      maw={640}
      mb="sm"
      label={t`Add an experiment`}
      placeholder={t`task, model or engine`}
      description={t`The newest 500 that succeeded`}
      data={data}
      value={null}
      disabled={ids.length >= MOST_COMPARED}
      nothingFoundMessage={t`No experiment has these letters`}
      onChange={(id) => id && onAdd(id)}
    />
  );
}

interface ComparisonProps {
  comparison: ExperimentComparison;
  onRemove: (id: string) => void;
}

function Comparison({ comparison, onRemove }: ComparisonProps) {
  const { experiments, rows } = comparison;
  const [isShort, setShort] = useUrlState("only", "");
  const search = useSharedSearch();
  const cautions = rows.filter(isCaution).map(rowName);
  const visible = isShort ? rows.filter((row) => row.differs || row.kind === "result") : rows;
  const columns: Column<ComparedRow>[] = [
    {
      name: t`About`,
      cell: (row) => <span className="dim nowrap">{KIND_WORDS[row.kind]}</span>,
    },
    {
      name: t`Value`,
      cell: (row) => (
        <>
          {rowName(row)} {row.unit && <span className="dim">({row.unit})</span>}{" "}
          {isCaution(row) && <StateMark kind="attention" word={t`differs`} />}
        </>
      ),
    },
    ...experiments.map((experiment, index): Column<ComparedRow> => ({
      name: columnName(experiment, experiments),
      isNumber: true,
      cell: (row) => <Value row={row} index={index} />,
    })),
  ];
  return (
    <>
      <Group gap="xs" mb="sm" role="group" aria-label={t`Compared experiments`}>
        {experiments.map((experiment) => (
          <Group key={experiment.experiment_id} gap={4} wrap="nowrap">
            <Link to={{ pathname: paths.experiment(experiment.experiment_id), search }}>
              {columnName(experiment, experiments)}
            </Link>
            <Button
              size="compact-xs"
              variant="default"
              aria-label={t`leave out ${columnName(experiment, experiments)}`}
              onClick={() => onRemove(experiment.experiment_id)}
            >
              ×
            </Button>
          </Group>
        ))}
      </Group>
      <p role="note">
        {cautions.length > 0 ? (
          <Trans>
            <strong>More than the parameters differs: {cautions.join(", ")}.</strong> Results may
            differ by that.
          </Trans>
        ) : (
          <Trans>The parameters alone differ, as far as it is known.</Trans>
        )}
      </p>
      <Checkbox
        mb="sm"
        label={t`Only what differs, and results`}
        checked={isShort !== ""}
        onChange={(event) => setShort(event.currentTarget.checked ? "differences" : "")}
      />
      <DataTable
        label={t`Comparison`}
        columns={columns}
        rows={visible}
        rowKey={(row) => `${row.kind} ${row.name}`}
        isMarked={isCaution}
      />
    </>
  );
}

/** Its task and number; with the end of its id where another one is called the same. */
function columnName(experiment: ComparedExperiment, all: ComparedExperiment[]): string {
  const nameOf = ({ task_name, ordinal }: ComparedExperiment) => `${task_name} #${ordinal}`;
  const name = nameOf(experiment);
  const isTwice = all.filter((other) => nameOf(other) === name).length > 1;
  return isTwice ? `${name} (${experiment.experiment_id.slice(-6)})` : name;
}

function Value({ row, index }: { row: ComparedRow; index: number }) {
  const text = row.texts[index] ?? UNKNOWN;
  if (row.kind !== "result") return text;
  const change = changeText(row, index);
  return (
    <span className="nowrap">
      {row.best === index ? <strong title={t`the best of the row`}>{text} ★</strong> : text}
      {change && <span className="dim"> {change}</span>}
    </span>
  );
}
