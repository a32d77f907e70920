import type { GpuRequest, TaskPlan, UsageLine } from "@schemas/messages";
import { valueAt, type Draft } from "./draft";

/** Of a search those that it may try; null where neither is known. */
export function experimentsAtMost({ total, experiments_at_most: tried }: Pick<TaskPlan, "total" | "experiments_at_most">): number {
  return Math.max(total, tried ?? 0);
}

/** Every experiment to its time limit, within the task's budget; null where nothing bounds it. */
export function gpuHoursAtMost(experiments: number, gpus: number | null, draft: Draft): number | null {
  const budget = Number(valueAt(draft, "optimization.max_gpu_hours") ?? Infinity);
  const limitSeconds = Number(valueAt(draft, "optimization.timeout_per_iteration") ?? NaN);
  const spent = gpus === null ? NaN : (experiments * gpus * limitSeconds) / 3600;
  const hours = Number.isNaN(spent) ? budget : Math.min(spent, budget);
  return Number.isFinite(hours) ? hours : null;
}

export function gpusOf(request: Pick<GpuRequest, "gpus" | "nodes" | "shares">): number {
  return request.shares ?? (request.gpus ?? 1) * (request.nodes ?? 1);
}

/** The cheapest and the dearest GPU-hour of these models, or of all where none is named. */
export function priceRange(lines: Pick<UsageLine, "name" | "gpu_hours" | "cost">[], models: string[]): [number, number] | null {
  const prices = lines
    .filter(({ name }) => models.length === 0 || models.some((model) => name.toLowerCase().includes(model.toLowerCase())))
    .flatMap(({ gpu_hours: hours, cost }) => (cost !== null && hours > 0 ? [cost / hours] : []));
  return prices.length > 0 ? [Math.min(...prices), Math.max(...prices)] : null;
}
