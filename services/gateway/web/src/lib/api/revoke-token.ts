import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";
import { aboutTopic } from "@/lib/topics";

export function useRevokeToken() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (tokenId: string) => api(endpoints.revokeToken, { place: { token_id: tokenId } }),
    onSuccess: () => client.invalidateQueries(aboutTopic("tokens")),
  });
}
