import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { TaskView } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";
import type { Draft } from "../draft";

export function useSubmitTask(namespace: string, onSubmitted: (task: TaskView) => void) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (draft: Draft) =>
      api(endpoints.submitTask, {
        query: { namespace: namespace || null },
        body: JSON.stringify(draft),
      }),
    onSuccess: async (task) => {
      showToast({ text: t`Submitted ${task.task_name}` });
      await client.invalidateQueries(aboutTopic("tasks"));
      onSubmitted(task);
    },
  });
}
