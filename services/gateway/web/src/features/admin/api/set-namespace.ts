import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { NamespaceRules } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { aboutTopic } from "@/lib/topics";

interface NamespaceChange {
  namespace: string;
  rules: NamespaceRules;
}

export function useSetNamespace() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ namespace, rules }: NamespaceChange) =>
      api(endpoints.setNamespace, { place: { namespace }, body: rules }),
    onSuccess: () => client.invalidateQueries(aboutTopic("namespaces")),
  });
}
