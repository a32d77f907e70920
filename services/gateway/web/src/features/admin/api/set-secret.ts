import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";

interface SecretChange {
  namespace: string;
  name: string;
  value: string;
}

/** No answer ever has the value; the query client keeps none of a mutation's that is over. */
export function useSetSecret() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ namespace, name, value }: SecretChange) =>
      api(endpoints.setSecret, {
        place: { secret_name: name },
        query: { namespace },
        body: { value },
      }),
    gcTime: 0,
    onSuccess: (_, { name }) => {
      showToast({ text: t`Set: secret ${name}` });
      return client.invalidateQueries(aboutTopic("secrets"));
    },
  });
}
