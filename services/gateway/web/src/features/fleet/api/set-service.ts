import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { Cause, ReturnToService, Withdrawal } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { refreshFleet } from "./refresh-fleet";

export type ServiceChange =
  | { action: "cordon"; nodeId: string; body: Withdrawal }
  | { action: "uncordon"; nodeId: string; body: ReturnToService }
  | { action: "drain"; nodeId: string; body: Cause };

/** Takes a node or a GPU out of service, or back into it. */
export function useSetService() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ action, nodeId, body }: ServiceChange) =>
      api<"node_id", never, ServiceChange["body"], unknown>(endpoints[action], {
        place: { node_id: nodeId },
        body,
      }),
    onSuccess: () => refreshFleet(client),
  });
}
