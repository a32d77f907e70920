import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Checkbox, Group, Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";
import type { Leader, LeaderList, Objective } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Empty, Loaded, Page } from "@/components/page";
import { StateMark } from "@/components/state-mark";
import { When } from "@/components/when";
import { valueText } from "@/domain/parameters";
import { isOneOf } from "@/lib/is-one-of";
import { paths } from "@/lib/paths";
import { number, UNKNOWN } from "@/lib/units";
import { useNamespace, useSharedSearch, useUrlState } from "@/lib/url-state";
import { LEAST_COMPARED, MOST_COMPARED } from "./api/get-comparison";
import { leadersOptions } from "./api/get-leaders";
import { objectiveOf } from "./task-sums";

const FIRST_OBJECTIVE: Objective = "maximize_throughput";

/** The best experiment of a model for each engine, its version, GPUs and load. */
export function LeaderboardPage() {
  const [namespace] = useNamespace();
  const models = useQuery(leadersOptions("", FIRST_OBJECTIVE, namespace));
  return (
    <Page title={t`Leaderboard`}>
      <Loaded query={models}>
        {({ models: measured }) =>
          measured.length === 0 ? (
            <Empty title={t`No model was measured yet`}>
              <Trans>A task that succeeded brings its best configuration here.</Trans>
            </Empty>
          ) : (
            <Board models={measured} namespace={namespace} />
          )
        }
      </Loaded>
    </Page>
  );
}

function Board({ models, namespace }: { models: LeaderList["models"]; namespace: string }) {
  const [wantedModel, setModel] = useUrlState("model", "");
  const [wantedObjective, setObjective] = useUrlState("objective", "");
  const measured = models.find(({ model }) => model === wantedModel) ?? models[0];
  const model = measured?.model ?? "";
  const objectives = measured?.objectives ?? [];
  const [first = FIRST_OBJECTIVE] = objectives;
  const objective = isOneOf(objectives, wantedObjective) ? wantedObjective : first;
  const leaders = useQuery(leadersOptions(model, objective, namespace));
  return (
    <>
      <Group align="end" mb="sm">
        <Select
          searchable
          miw={280}
          label={t`Model`}
          data={models.map(({ model: name }) => name)}
          value={model}
          allowDeselect={false}
          onChange={(value) => value && setModel(value)}
        />
        <Select
          miw={260}
          label={t`Objective`}
          data={objectives.map((value) => ({ value, label: objectiveOf(value, []).word }))}
          value={objective}
          allowDeselect={false}
          onChange={(value) => value && setObjective(value)}
        />
      </Group>
      <Loaded query={leaders}>
        {(board) => (
          <Leaders key={model + objective} leaders={board.leaders} objective={objective} />
        )}
      </Loaded>
    </>
  );
}

function Leaders({ leaders, objective }: { leaders: Leader[]; objective: Objective }) {
  const search = useSharedSearch();
  const [picked, setPicked] = useState<string[]>([]);
  const { word, unit } = objectiveOf(objective, []);
  const loads = new Set(leaders.map(({ load }) => load)).size;
  const toggle = (id: string) =>
    setPicked(picked.includes(id) ? picked.filter((other) => other !== id) : [...picked, id]);
  const columns: Column<Leader>[] = [
    {
      name: t`Score`,
      unit,
      title: word,
      isNumber: true,
      sortBy: (leader) => leader.score,
      cell: (leader) => number(leader.score),
    },
    {
      name: t`Experiment`,
      sortBy: (leader) => leader.task_name,
      cell: (leader) => (
        <Link to={{ pathname: paths.experiment(leader.experiment_id), search }}>
          {leader.task_name} #{leader.ordinal}
        </Link>
      ),
    },
    { name: t`Engine`, sortBy: (leader) => leader.engine, cell: (leader) => leader.engine },
    {
      name: t`Version`,
      title: t`Tag of the engine's image, or the beginning of its digest; the driver below`,
      sortBy: (leader) => leader.version,
      cell: (leader) => (
        <>
          {leader.version || leader.image_digest.slice(0, 19) || UNKNOWN}
          {leader.driver_versions.length > 0 && (
            <div className="dim">{t`driver ${leader.driver_versions.join(", ")}`}</div>
          )}
        </>
      ),
    },
    {
      name: t`GPUs`,
      sortBy: (leader) => leader.gpu_models.join(),
      cell: (leader) => `${leader.gpus} × ${leader.gpu_models.join(", ") || "GPU"}`,
    },
    { name: t`Load`, sortBy: (leader) => leader.load, cell: (leader) => leader.load },
    { name: t`Trust`, isLong: true, cell: (leader) => <Trust leader={leader} /> },
    {
      name: t`Parameters`,
      isLong: true,
      cell: (leader) => (
        <>
          {Object.entries(leader.parameters)
            .map(([name, value]) => `${name}=${valueText(value)}`)
            .join(" ") || UNKNOWN}
          <div className="dim">{t`best of ${leader.experiments}`}</div>
        </>
      ),
    },
    {
      name: t`Measured`,
      sortBy: (leader) => leader.measured_at,
      cell: (leader) => <When at={leader.measured_at} />,
    },
    {
      name: t`Compare`,
      cell: (leader) => (
        <Checkbox
          aria-label={t`compare ${leader.task_name} #${leader.ordinal}`}
          checked={picked.includes(leader.experiment_id)}
          disabled={picked.length >= MOST_COMPARED && !picked.includes(leader.experiment_id)}
          onChange={() => toggle(leader.experiment_id)}
        />
      ),
    },
  ];
  const compared = new URLSearchParams(search);
  compared.set("experiments", picked.join(","));
  return (
    <>
      {loads > 1 && (
        <p role="note">
          <Trans>Scores of the same load compare: here are {loads} loads.</Trans>
        </p>
      )}
      <DataTable
        label={t`Leaderboard`}
        columns={columns}
        rows={leaders}
        rowKey={(leader) => leader.experiment_id}
        empty={t`Nothing was measured for this objective.`}
      />
      {picked.length >= LEAST_COMPARED ? (
        <Button
          mt="sm"
          size="xs"
          component={Link}
          to={{ pathname: paths.comparison(), search: compared.toString() }}
        >
          <Trans>Compare the {picked.length} chosen</Trans>
        </Button>
      ) : (
        <p className="dim">
          <Trans>Choose two or more to compare them.</Trans>
        </p>
      )}
    </>
  );
}

/** Whether the task repeated it and chose it, how often it ran, and what may be off. */
function Trust({ leader }: { leader: Leader }) {
  const { is_confirmed: isConfirmed, runs, spread_percent: spread, misses, doubts } = leader;
  const times = runs > 1 ? t`${runs} runs` : t`1 run`;
  const deviation = spread === null ? "" : ` ± ${number(spread)} %`;
  return (
    <>
      {misses.length > 0 ? (
        <StateMark kind="bad" word={t`misses ${misses.join(", ")}`} />
      ) : isConfirmed ? (
        <StateMark kind="ok" word={t`confirmed`} />
      ) : (
        <StateMark kind="unknown" word={t`not confirmed`} />
      )}{" "}
      <span className="dim">
        {times}
        {deviation}
      </span>
      {doubts.length > 0 && <div className="dim">{doubts.join("; ")}</div>}
    </>
  );
}
