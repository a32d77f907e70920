import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient, type QueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { TaskView } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { showToast, undoBy } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";

type TaskPlace = Record<"task_id", string>;

const CALLS = {
  pause: (place: TaskPlace) => api(endpoints.pauseTask, { place }),
  resume: (place: TaskPlace) => api(endpoints.resumeTask, { place }),
  cancel: (place: TaskPlace) =>
    api(endpoints.cancelTask, { place, body: { reason: "from the page" } }),
};

export type TaskChange = keyof typeof CALLS;

/** What takes a change back; a cancelled task does not come back. */
const BACK: Partial<Record<TaskChange, TaskChange>> = { pause: "resume", resume: "pause" };

export function useChangeTask(task: Pick<TaskView, "task_id" | "task_name">) {
  const client = useQueryClient();
  return useMutation({ mutationFn: (change: TaskChange) => changeTask(client, task, change) });
}

/** Says what it did, and takes it back on request. */
async function changeTask(
  client: QueryClient,
  task: Pick<TaskView, "task_id" | "task_name">,
  change: TaskChange,
): Promise<void> {
  await CALLS[change]({ task_id: task.task_id });
  const texts = {
    pause: t`Paused ${task.task_name}: what runs goes on to its end`,
    resume: t`Resumed ${task.task_name}`,
    cancel: t`Cancelled ${task.task_name}`,
  };
  const back = BACK[change];
  showToast({
    text: texts[change],
    ...(back && { undo: undoBy(() => changeTask(client, task, back)) }),
  });
  await client.invalidateQueries(aboutTopic("tasks"));
}
