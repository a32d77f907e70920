import { t } from "@lingui/core/macro";
import type { GpuRequest } from "@schemas/messages";
import { gibibytes } from "@/lib/units";

/** "4 GPUs, H200, 80 GiB each": what differs from any GPU. */
export function requestText(request: GpuRequest): string {
  const count = request.gpus ?? 1;
  const kind = request.mig_profile ? t`MIG ${request.mig_profile}` : count === 1 ? "GPU" : "GPUs";
  const parts = [`${count} ${kind}`];
  const nodes = request.nodes ?? 1;
  if (nodes > 1) parts.push(t`on ${nodes} nodes`);
  if (request.shares) parts.push(t`${request.shares} shares`);
  if (request.gpu_models?.length) parts.push(request.gpu_models.join(" or "));
  if (request.min_memory_mb) parts.push(t`${gibibytes(request.min_memory_mb)} free each`);
  if (request.node_ids?.length) parts.push(t`on ${request.node_ids.join(" or ")}`);
  if (request.priority) parts.push(t`priority ${request.priority}`);
  return parts.join(", ");
}
