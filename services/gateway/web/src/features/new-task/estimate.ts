import type { GpuRequest, TaskPlan } from "@schemas/messages";

/** Of a search those that it may try; null where neither is known. */
export function experimentsAtMost({
  total,
  experiments_at_most: tried,
}: Pick<TaskPlan, "total" | "experiments_at_most">): number {
  return Math.max(total, tried);
}

export function gpusOf(request: Pick<GpuRequest, "gpus" | "nodes" | "shares">): number {
  return request.shares ?? (request.gpus ?? 1) * (request.nodes ?? 1);
}
