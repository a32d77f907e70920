import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";

export function useRevokeToken() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (tokenId: string) => api(endpoints.revokeToken, { place: { token_id: tokenId } }),
    onSuccess: ({ name }) => {
      showToast({ text: t`Revoked: token ${name}` });
      return client.invalidateQueries(aboutTopic("tokens"));
    },
  });
}
