import { t } from "@lingui/core/macro";
import "@mantine/spotlight/styles.css";
import { useMantineColorScheme } from "@mantine/core";
import {
  Spotlight,
  createSpotlight,
  useSpotlight,
  type SpotlightActionData,
} from "@mantine/spotlight";
import { useQuery } from "@tanstack/react-query";
import { useState, type KeyboardEvent, type MouseEvent } from "react";
import { useNavigate } from "react-router";
import { holderOf } from "@/domain/holder";
import { experimentsOptions } from "@/lib/api/get-experiments";
import { gpusOptions } from "@/lib/api/get-gpus";
import { holdingOptions } from "@/lib/api/get-holding";
import { useIsAdmin, useMayChange } from "@/lib/api/get-me";
import { nodesOptions } from "@/lib/api/get-nodes";
import { tasksOptions } from "@/lib/api/get-tasks";
import { paths } from "@/lib/paths";
import { useSharedSearch } from "@/lib/url-state";
import { NAVIGATION } from "./navigation";
import { rememberAction, withRecentFirst } from "./recent-actions";

const [store, spotlight] = createSpotlight();
export const openPalette = spotlight.open;
export const closePalette = spotlight.close;

const NEWEST = { limit: 200 };
const ACTION_WORDS = { cordon: t`Cordon`, uncordon: t`Uncordon`, drain: t`Drain` };

/** Open the first match where none is selected: matches that came after the last letter are not. */
function openFirstUnselected(event: KeyboardEvent) {
  const dialog = event.currentTarget.closest("[role=dialog]");
  if (dialog?.querySelector("[data-action][data-selected]")) return;
  dialog?.querySelector<HTMLElement>("[data-action]")?.click();
}

/** Pages, tasks, experiments, reservations, nodes, GPUs and commands by a few letters. */
export function Palette() {
  const navigate = useNavigate();
  const search = useSharedSearch();
  const { toggleColorScheme } = useMantineColorScheme();
  const [query, setQuery] = useState("");
  // Asked of the store: its callback is silent for who clicked before this was loaded.
  const { opened: isOpen } = useSpotlight(store);

  const go = (id: string, label: string, description: string, to: string): SpotlightActionData => ({
    id,
    label,
    description,
    onClick: () => void navigate({ pathname: to, search }),
  });
  const gpus = useQuery({ ...gpusOptions, enabled: isOpen });
  const tasks = useQuery({ ...tasksOptions(NEWEST), enabled: isOpen });
  const experiments = useQuery({ ...experimentsOptions(NEWEST), enabled: isOpen });
  const holding = useQuery({ ...holdingOptions, enabled: isOpen });
  const nodes = useQuery({ ...nodesOptions, enabled: isOpen });
  const mayReserve = useMayChange();
  const isAdmin = useIsAdmin();
  const names = new Map(tasks.data?.tasks.map((task) => [task.task_id, task.task_name]));
  const actions = [
    ...NAVIGATION.map((entry) => go(entry.to, entry.word, t`Page`, entry.to)),
    go("new-task", t`New task`, t`Command`, paths.newTask()),
    go("measure", t`Measure a running server`, t`Command`, paths.measure()),
    ...(mayReserve
      ? [
          {
            id: "reserve",
            label: t`Reserve GPUs`,
            description: t`Command`,
            onClick: () => void navigate(`${paths.reservations()}?reserve=yes`),
          },
        ]
      : []),
    go("why", t`Why does my request wait`, t`Command`, paths.queue()),
    {
      id: "scheme",
      label: t`Switch between dark and light`,
      description: t`Command`,
      onClick: toggleColorScheme,
    },
    ...(tasks.data?.tasks ?? []).map((task) =>
      go(task.task_id, task.task_name, t`Task, ${task.state}`, paths.task(task.task_id)),
    ),
    ...(experiments.data?.experiments ?? []).map((experiment) =>
      go(
        experiment.experiment_id,
        `${names.get(experiment.task_id) ?? experiment.task_id} #${experiment.ordinal}`,
        t`Experiment, ${experiment.state}`,
        paths.experiment(experiment.experiment_id),
      ),
    ),
    ...[...(holding.data?.values() ?? [])].map(
      ({ reservation_id: id, holder, requester, namespace, devices }) => ({
        id: `reservation-${id}`,
        label: holderOf(holder).name || id,
        description: t`Reservation of ${requester || namespace}, ${devices.length} GPUs`,
        onClick: () => void navigate(`${paths.reservations()}?open=${id}`),
      }),
    ),
    ...(nodes.data ?? []).map(({ node_id: id, gpus_total: count }) => ({
      id: `node-${id}`,
      label: id,
      description: t`Node, ${count} GPUs`,
      onClick: () => void navigate({ pathname: paths.node(id), search }),
    })),
    ...(isAdmin ? (nodes.data ?? []) : []).flatMap(({ node_id: id, cordon }) =>
      ([cordon ? "uncordon" : "cordon", "drain"] as const).map((action) => ({
        id: `${action}-${id}`,
        label: `${ACTION_WORDS[action]} ${id}`,
        description: t`Command`,
        onClick: () => void navigate(`${paths.node(id)}?do=${action}`),
      })),
    ),
    ...(gpus.data ?? []).map((gpu) =>
      go(
        gpu.uuid,
        t`${gpu.node_id} GPU ${gpu.index}`,
        `${gpu.name}, ${gpu.uuid}`,
        paths.gpu(gpu.node_id, gpu.uuid),
      ),
    ),
  ];

  const ordered = withRecentFirst(actions).map((action) => ({
    ...action,
    onClick: (event: MouseEvent<HTMLButtonElement>) => {
      rememberAction(action.id);
      action.onClick?.(event);
    },
  }));

  return (
    <Spotlight
      store={store}
      actions={ordered}
      query={query}
      onQueryChange={setQuery}
      shortcut={["mod + K"]}
      tagsToIgnore={[]}
      limit={12}
      highlightQuery
      scrollable
      nothingFound={t`No matches.`}
      searchProps={{
        placeholder: t`Pages, tasks, experiments, people, nodes, GPUs, commands`,
        "aria-label": t`Search`,
        onKeyDown: (event) => {
          if (event.key === "Enter" && query) openFirstUnselected(event);
        },
      }}
    />
  );
}
