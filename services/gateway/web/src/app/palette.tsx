import "@mantine/spotlight/styles.css";
import { useMantineColorScheme } from "@mantine/core";
import { Spotlight, spotlight, type SpotlightActionData } from "@mantine/spotlight";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate } from "react-router";
import { holderOf } from "@/domain/holder";
import { experimentsOptions } from "@/lib/api/get-experiments";
import { gpusOptions } from "@/lib/api/get-gpus";
import { holdingOptions } from "@/lib/api/get-holding";
import { useMayChange } from "@/lib/api/get-me";
import { nodesOptions } from "@/lib/api/get-nodes";
import { tasksOptions } from "@/lib/api/get-tasks";
import { paths } from "@/lib/paths";
import { useSharedSearch } from "@/lib/url-state";
import { NAVIGATION } from "./navigation";

export const openPalette = spotlight.open;

const NEWEST = { limit: 200 };

/** Pages, tasks, experiments, reservations, nodes, GPUs and commands by a few letters. */
export function Palette() {
  const navigate = useNavigate();
  const search = useSharedSearch();
  const { toggleColorScheme } = useMantineColorScheme();
  const [query, setQuery] = useState("");
  const [isOpen, setOpen] = useState(false);

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
  const names = new Map(tasks.data?.tasks.map((task) => [task.task_id, task.task_name]));
  const actions = [
    ...NAVIGATION.map((entry) => go(entry.to, entry.word, "Page", entry.to)),
    go("new-task", "New task", "Command", paths.newTask()),
    ...(mayReserve
      ? [
          {
            id: "reserve",
            label: "Reserve GPUs",
            description: "Command",
            onClick: () => void navigate(`${paths.reservations()}?reserve=yes`),
          },
        ]
      : []),
    go("why", "Why does my request wait", "Command", paths.queue()),
    {
      id: "scheme",
      label: "Switch between dark and light",
      description: "Command",
      onClick: toggleColorScheme,
    },
    ...(tasks.data?.tasks ?? []).map((task) =>
      go(task.task_id, task.task_name, `Task, ${task.state}`, paths.task(task.task_id)),
    ),
    ...(experiments.data?.experiments ?? []).map((experiment) =>
      go(
        experiment.experiment_id,
        `${names.get(experiment.task_id) ?? experiment.task_id} #${experiment.ordinal}`,
        `Experiment, ${experiment.state}`,
        paths.experiment(experiment.experiment_id),
      ),
    ),
    ...[...(holding.data?.values() ?? [])].map(
      ({ reservation_id: id, holder, requester, namespace, devices }) => ({
        id: `reservation-${id}`,
        label: holderOf(holder).name || id,
        description: `Reservation of ${requester || namespace}, ${devices.length} GPUs`,
        onClick: () => void navigate(`${paths.reservations()}?open=${id}`),
      }),
    ),
    ...(nodes.data ?? []).map(({ node_id: id, gpus_total: count }) => ({
      id: `node-${id}`,
      label: id,
      description: `Node, ${count} GPUs`,
      onClick: () => void navigate(`${paths.monitoring()}?node=${encodeURIComponent(id)}`),
    })),
    ...(gpus.data ?? []).map((gpu) =>
      go(
        gpu.uuid,
        `${gpu.node_id} GPU ${gpu.index}`,
        `${gpu.name}, ${gpu.uuid}`,
        paths.gpu(gpu.node_id, gpu.uuid),
      ),
    ),
  ];

  return (
    <Spotlight
      actions={actions}
      query={query}
      onQueryChange={setQuery}
      onSpotlightOpen={() => setOpen(true)}
      onSpotlightClose={() => setOpen(false)}
      shortcut={["mod + K"]}
      limit={12}
      highlightQuery
      scrollable
      nothingFound="No matches."
      searchProps={{
        placeholder: "Pages, tasks, experiments, people, nodes, GPUs, commands",
        "aria-label": "Search",
      }}
    />
  );
}
