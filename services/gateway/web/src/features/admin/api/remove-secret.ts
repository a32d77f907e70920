import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { SecretView } from "@schemas/messages";
import { api, unlessGone } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";

export function useRemoveSecret() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ namespace, name }: SecretView) =>
      unlessGone(
        api(endpoints.removeSecret, { place: { secret_name: name }, query: { namespace } }),
      ),
    onSuccess: (_, { name }) => {
      showToast({ text: t`Removed: secret ${name}` });
      return client.invalidateQueries(aboutTopic("secrets"));
    },
  });
}
