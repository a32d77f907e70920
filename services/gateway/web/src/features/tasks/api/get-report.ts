import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { textAt } from "@/lib/api-client";

/** The task's report as Markdown. */
export const reportOptions = (taskId: string) =>
  queryOptions({
    queryKey: ["experiments", "report of task", taskId],
    queryFn: ({ signal }) =>
      textAt(endpoints.getTaskReportAsMarkdown, { place: { task_id: taskId }, signal }),
  });
