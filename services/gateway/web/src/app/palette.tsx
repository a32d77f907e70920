import "@mantine/spotlight/styles.css";
import { useMantineColorScheme } from "@mantine/core";
import { Spotlight, spotlight, type SpotlightActionData } from "@mantine/spotlight";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate } from "react-router";
import type { GpuView, TaskView } from "@schemas/messages";
import { paths } from "@/lib/paths";
import { useSharedSearch } from "@/lib/url-state";
import { NAVIGATION } from "./navigation";

export const openPalette = spotlight.open;

/** Pages, tasks, GPUs and commands by a few letters. */
export function Palette() {
  const navigate = useNavigate();
  const client = useQueryClient();
  const search = useSharedSearch();
  const { toggleColorScheme } = useMantineColorScheme();
  const [query, setQuery] = useState("");

  const go = (id: string, label: string, description: string, to: string): SpotlightActionData => ({
    id,
    label,
    description,
    onClick: () => void navigate({ pathname: to, search }),
  });
  const gpus = client.getQueryData<GpuView[]>(["gpus"]) ?? [];
  const tasks = client.getQueriesData<{ tasks: TaskView[] }>({ queryKey: ["tasks"] });
  const seen = new Map(tasks.flatMap(([, data]) => data?.tasks ?? []).map((t) => [t.task_id, t]));
  const actions = [
    ...NAVIGATION.map((entry) => go(entry.to, entry.word, "Page", entry.to)),
    {
      id: "scheme",
      label: "Switch between dark and light",
      description: "Command",
      onClick: toggleColorScheme,
    },
    ...[...seen.values()].map((task) =>
      go(task.task_id, task.task_name, `Task, ${task.state}`, paths.task(task.task_id)),
    ),
    ...gpus.map((gpu) =>
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
      shortcut={["mod + K"]}
      limit={12}
      highlightQuery
      scrollable
      nothingFound="Nothing has these letters"
      searchProps={{ placeholder: "Pages, tasks, GPUs, commands", "aria-label": "Search" }}
    />
  );
}
