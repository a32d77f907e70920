import { useMutation } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { ServerAddress } from "@schemas/messages";
import { api } from "@/lib/api-client";

/** The models that a server lists, as a node reaches it. */
export function useListServedModels(onListed: (models: string[]) => void) {
  return useMutation({
    mutationFn: ({ nodeId, body }: { nodeId: string; body: ServerAddress }) =>
      api(endpoints.listServedModels, { place: { node_id: nodeId }, body }),
    onSuccess: ({ models }) => onListed(models),
  });
}
