import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient, type QueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { NamespaceRules } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { showToast, undoBy } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";

interface NamespaceChange {
  namespace: string;
  rules: NamespaceRules;
  /** What it had, for the way back. */
  before: NamespaceRules | null;
}

export function useSetNamespace() {
  const client = useQueryClient();
  return useMutation({ mutationFn: (change: NamespaceChange) => setRules(client, change) });
}

async function setRules(client: QueryClient, change: NamespaceChange): Promise<void> {
  const { namespace, rules, before } = change;
  await api(endpoints.setNamespace, { place: { namespace }, body: rules });
  const undo =
    before && undoBy(() => setRules(client, { namespace, rules: before, before: rules }));
  showToast({ text: t`Set: rules of ${namespace}`, ...(undo && { undo }) });
  await client.invalidateQueries(aboutTopic("namespaces"));
}
