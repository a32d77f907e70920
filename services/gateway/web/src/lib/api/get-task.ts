import { queryOptions, skipToken } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

/** Without an id nothing is fetched. */
export const taskOptions = (taskId: string | null) =>
  queryOptions({
    queryKey: ["tasks", "one", taskId],
    queryFn:
      taskId === null
        ? skipToken
        : ({ signal }) => api(endpoints.getTask, { place: { task_id: taskId }, signal }),
  });
