import { queryOptions } from "@tanstack/react-query";
import type {
  ExperimentDetail,
  RequestsView,
  TaskList,
  TaskView,
} from "@schemas/messages";
import { allEvents } from "@/lib/all-events";
import { allOf, api, type Query } from "@/lib/api-client";
import { untilWhole } from "@/lib/query-client";

const RUNNING_REFRESH_MS = 5_000;

/** The newest first; what events announce is asked anew at once. */
export const tasksOptions = (query: Query) =>
  queryOptions({
    queryKey: ["tasks", query],
    queryFn: ({ signal }) => api<TaskList>("/tasks", { query, signal }),
  });

export const taskOptions = (taskId: string) =>
  queryOptions({
    queryKey: ["tasks", "one", taskId],
    queryFn: ({ signal }) => api<TaskView>(`/tasks/${taskId}`, { signal }),
  });

export const experimentsOptions = (taskId: string) =>
  queryOptions({
    queryKey: ["experiments", "of", taskId],
    queryFn: ({ signal }) =>
      allOf<"experiments", ExperimentDetail>(`/tasks/${taskId}/experiments`, "experiments", { signal }),
    refetchInterval: ({ state }) =>
      state.data?.some((each) => each.state === "running" && !each.gpu_info) ? RUNNING_REFRESH_MS : false,
  });

export const recentExperimentsOptions = (namespace: string) =>
  queryOptions({
    queryKey: ["experiments", "recent", namespace],
    queryFn: ({ signal }) =>
      api<{ experiments: ExperimentDetail[] }>("/experiments", {
        query: { limit: 500, namespace: namespace || null, monitoring: false },
        signal,
      }),
  });

/** All of them, oldest first. */
export const eventsOptions = (taskId: string) =>
  queryOptions({
    queryKey: ["experiments", "events", taskId],
    queryFn: ({ signal }) => allEvents({ task_id: taskId }, signal),
  });

/** With the levels of its benchmark, which lists leave out. */
export const detailOptions = (experimentId: string) =>
  queryOptions({
    queryKey: ["experiments", "one", experimentId],
    queryFn: ({ signal }) => api<ExperimentDetail>(`/experiments/${experimentId}`, { signal }),
    refetchInterval: untilWhole,
  });

export const requestsOptions = (experimentId: string, level: number) =>
  queryOptions({
    queryKey: ["requests", experimentId, level],
    queryFn: ({ signal }) =>
      api<RequestsView>(`/experiments/${experimentId}/requests`, { query: { level }, signal }),
    staleTime: Infinity,
  });
