import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

/** The forms in which people run a task's best configuration. */
export const deploymentsOptions = (taskId: string) =>
  queryOptions({
    queryKey: ["experiments", "deployments of task", taskId],
    queryFn: async ({ signal }) => {
      const report = await api(endpoints.getTaskReport, { place: { task_id: taskId }, signal });
      return report.deployments;
    },
  });
