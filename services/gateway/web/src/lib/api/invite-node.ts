import { useMutation } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

/** Makes the line that a new server joins by; the answer alone has it. */
export function useInviteNode() {
  return useMutation({
    mutationFn: (nodeId: string) =>
      api(endpoints.inviteNode, {
        place: { node_id: nodeId },
        // The new server asks where this browser does.
        body: { api_url: window.location.origin },
      }),
  });
}
