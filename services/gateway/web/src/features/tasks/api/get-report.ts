import { useMutation } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { textAt } from "@/lib/api-client";

/** Fetched when somebody asks for it: the task's report as Markdown. */
export function useReport(taskId: string, onMarkdown: (markdown: string) => void) {
  return useMutation({
    mutationFn: () => textAt(endpoints.getTaskReportAsMarkdown, { place: { task_id: taskId } }),
    onSuccess: onMarkdown,
  });
}
