import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";
import { refreshFleet } from "./refresh-fleet";

/** Lets a node that is new be granted on. */
export function useAdmitNode() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (nodeId: string) => api(endpoints.admitNode, { place: { node_id: nodeId } }),
    onSuccess: (_, nodeId) => {
      showToast({ text: t`Admitted: node ${nodeId}` });
      return refreshFleet(client);
    },
  });
}
