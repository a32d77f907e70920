import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { TokenRequest } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";

/** The answer alone has the token's text. */
export function useCreateToken() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: TokenRequest) => api(endpoints.createToken, { body }),
    onSuccess: ({ token }) => {
      showToast({ text: t`Created: token ${token.name}` });
      return client.invalidateQueries(aboutTopic("tokens"));
    },
  });
}
