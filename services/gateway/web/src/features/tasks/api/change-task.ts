import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";
import { aboutTopic } from "@/lib/topics";

type TaskPlace = Record<"task_id", string>;

const CALLS = {
  pause: (place: TaskPlace) => api(endpoints.pauseTask, { place }),
  resume: (place: TaskPlace) => api(endpoints.resumeTask, { place }),
  cancel: (place: TaskPlace) =>
    api(endpoints.cancelTask, { place, body: { reason: "from the page" } }),
};

export type TaskChange = keyof typeof CALLS;

export function useChangeTask(taskId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (change: TaskChange) => CALLS[change]({ task_id: taskId }),
    onSettled: () => client.invalidateQueries(aboutTopic("tasks")),
  });
}
