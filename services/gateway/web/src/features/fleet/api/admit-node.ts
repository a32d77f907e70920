import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";
import { refreshFleet } from "./refresh-fleet";

/** Lets a node that is new be granted on. */
export function useAdmitNode() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (nodeId: string) => api(endpoints.admitNode, { place: { node_id: nodeId } }),
    onSuccess: () => refreshFleet(client),
  });
}
