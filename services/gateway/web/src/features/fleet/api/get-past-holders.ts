import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { PAST_HOLDING_STATES } from "@schemas/messages";
import { api } from "@/lib/api-client";

const REFRESH_MS = 15_000;
/** Of a node, newest first, among which those of one GPU are looked for. */
const LATEST = 500;

export const pastHoldersOptions = (nodeId: string) =>
  queryOptions({
    queryKey: ["reservations", "past", nodeId],
    queryFn: ({ signal }) =>
      api(endpoints.listReservations, {
        query: { node_id: nodeId, state: PAST_HOLDING_STATES.join(), limit: LATEST },
        signal,
      }),
    refetchInterval: REFRESH_MS,
    select: ({ reservations }) => reservations,
  });
