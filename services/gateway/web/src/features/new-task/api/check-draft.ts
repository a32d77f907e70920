import { queryOptions } from "@tanstack/react-query";
import type { AvailabilityView, GpuRequest, TaskPlan, TaskView } from "@schemas/messages";
import { api } from "@/lib/api-client";
import type { Draft } from "../draft";

const RECHECK_MS = 10_000;

/** What it would become here; ApiError says which field is wrong. */
export const planOptions = (draft: Draft | null) =>
  queryOptions({
    queryKey: ["plan", draft],
    queryFn: ({ signal }) => api<TaskPlan>("/tasks/validate", { method: "POST", body: draft, signal }),
    enabled: draft !== null,
    retry: false,
    gcTime: RECHECK_MS,
  });

export const availabilityOptions = (request: GpuRequest | undefined) =>
  queryOptions({
    queryKey: ["availability", request],
    queryFn: ({ signal }) =>
      api<AvailabilityView>("/availability", { method: "POST", body: request, signal }),
    enabled: request !== undefined,
    refetchInterval: RECHECK_MS,
  });

export const clonedOptions = (taskId: string | null) =>
  queryOptions({
    queryKey: ["tasks", "one", taskId],
    queryFn: ({ signal }) => api<TaskView>(`/tasks/${taskId}`, { signal }),
    enabled: taskId !== null,
  });

export function submit(draft: Draft, namespace: string): Promise<TaskView> {
  return api<TaskView>("/tasks", { method: "POST", query: { namespace: namespace || null }, body: draft });
}
