import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { Cause, ReturnToService, Withdrawal } from "@schemas/messages";
import { api } from "@/lib/api-client";

export type ServiceChange =
  | { action: "cordon"; nodeId: string; body: Withdrawal }
  | { action: "uncordon"; nodeId: string; body: ReturnToService }
  | { action: "drain"; nodeId: string; body: Cause };

/** Takes a node or a GPU out of service, or back into it. */
export function useSetService() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ action, nodeId, body }: ServiceChange) =>
      api(`/nodes/${encodeURIComponent(nodeId)}/${action}`, { method: "POST", body }),
    onSuccess: () =>
      Promise.all(["gpus", "nodes"].map((key) => client.invalidateQueries({ queryKey: [key] }))),
  });
}
