import { useMutation } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { ServerQuestion } from "@schemas/messages";
import { api } from "@/lib/api-client";

/** A server's answer to a conversation, as a node gets it; nothing of it is stored. */
export function useAskServer() {
  return useMutation({
    mutationFn: ({ nodeId, body }: { nodeId: string; body: ServerQuestion }) =>
      api(endpoints.askServer, { place: { node_id: nodeId }, body }),
  });
}
