import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient, type QueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { Cause, ReturnToService, Withdrawal } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { showToast, undoBy } from "@/lib/toasts";
import { refreshFleet } from "./refresh-fleet";

export type ServiceChange =
  | { action: "cordon"; nodeId: string; body: Withdrawal }
  | { action: "uncordon"; nodeId: string; body: ReturnToService }
  | { action: "drain"; nodeId: string; body: Cause };

const DONE = { cordon: t`Cordoned`, uncordon: t`Back in service`, drain: t`Draining` };

/** Takes a node or a GPU out of service, or back into it. */
export function useSetService() {
  const client = useQueryClient();
  return useMutation({ mutationFn: (change: ServiceChange) => setService(client, change) });
}

/** Says what it did, and takes it back on request: the dialog that asked for it is gone by then. */
async function setService(client: QueryClient, change: ServiceChange): Promise<void> {
  const { action, nodeId, body } = change;
  await api<"node_id", never, ServiceChange["body"], unknown>(endpoints[action], {
    place: { node_id: nodeId },
    body,
  });
  const uuid = "device_uuid" in body ? body.device_uuid : null;
  const what = uuid ? t`GPU ${uuid} of ${nodeId}` : t`node ${nodeId}`;
  // What was drained is gone: only the cordon can be taken back.
  const back = { device_uuid: uuid, reason: "", confirm_stopped: false };
  const undo = undoBy(() => setService(client, { action: "uncordon", nodeId, body: back }));
  showToast({
    text: `${DONE[action]}: ${what}`,
    ...(action === "uncordon" ? {} : { undo }),
  });
  await refreshFleet(client);
}
