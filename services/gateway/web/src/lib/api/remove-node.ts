import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";
import { refreshFleet } from "./refresh-fleet";

interface Removal {
  nodeId: string;
  /** Ends what is held there, on the sender's word that nothing of it runs. */
  endsHeld: boolean;
  reason: string;
}

/** Has a node that has left forgotten; one that reports again is new. */
export function useRemoveNode() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ nodeId, endsHeld, reason }: Removal) =>
      api(endpoints.removeNode, {
        place: { node_id: nodeId },
        query: { end_held: endsHeld, reason },
      }),
    onSuccess: (_, { nodeId }) => {
      showToast({ text: t`Removed: node ${nodeId}` });
      return Promise.all([
        refreshFleet(client),
        client.invalidateQueries(aboutTopic("reservations")),
      ]);
    },
  });
}
