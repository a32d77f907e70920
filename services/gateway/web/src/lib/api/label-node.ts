import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient, type QueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";
import { showToast, undoBy } from "@/lib/toasts";
import { refreshFleet } from "./refresh-fleet";

/** By key; null takes a label away. */
export type LabelChanges = Record<string, string | null>;

interface Labelling {
  nodeId: string;
  changes: LabelChanges;
  /** What the changed keys had before, for the way back. */
  before: LabelChanges;
}

export function useLabelNode() {
  const client = useQueryClient();
  return useMutation({ mutationFn: (labelling: Labelling) => label(client, labelling) });
}

/** Says what it did, and takes it back on request. */
async function label(client: QueryClient, { nodeId, changes, before }: Labelling): Promise<void> {
  await api(endpoints.labelNode, { place: { node_id: nodeId }, body: { labels: changes } });
  const undo = () => label(client, { nodeId, changes: before, before: changes });
  showToast({ text: t`Labels changed: node ${nodeId}`, undo: undoBy(undo) });
  await refreshFleet(client);
}
