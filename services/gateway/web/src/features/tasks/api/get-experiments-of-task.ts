import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { ExperimentDetail } from "@schemas/messages";
import { allOf } from "@/lib/api-client";

const REFRESH_MS = 5_000;

const hasUnknownGpus = (experiments: ExperimentDetail[] | undefined) =>
  experiments?.some(({ state, gpu_info: gpus }) => state === "running" && !gpus) ?? false;

export const experimentsOfTaskOptions = (taskId: string) =>
  queryOptions({
    queryKey: ["experiments", "of task", taskId],
    queryFn: ({ signal }) =>
      allOf(endpoints.listTaskExperiments, (page) => page.experiments, {
        place: { task_id: taskId },
        signal,
      }),
    refetchInterval: ({ state }) => hasUnknownGpus(state.data) && REFRESH_MS,
  });
