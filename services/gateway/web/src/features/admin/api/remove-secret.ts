import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { SecretView } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { aboutTopic } from "@/lib/topics";

export function useRemoveSecret() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ namespace, name }: SecretView) =>
      api(endpoints.removeSecret, { place: { secret_name: name }, query: { namespace } }),
    onSuccess: () => client.invalidateQueries(aboutTopic("secrets")),
  });
}
