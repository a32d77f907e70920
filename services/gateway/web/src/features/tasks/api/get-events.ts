import { queryOptions } from "@tanstack/react-query";
import { allEvents } from "@/lib/all-events";

/** All of a task and its experiments, oldest first. */
export const eventsOptions = (taskId: string) =>
  queryOptions({
    queryKey: ["experiments", "events of task", taskId],
    queryFn: ({ signal }) => allEvents({ task_id: taskId }, signal),
  });
