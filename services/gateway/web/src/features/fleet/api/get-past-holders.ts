import { queryOptions } from "@tanstack/react-query";
import type { ReservationList } from "@schemas/messages";
import { api } from "@/lib/api-client";

const REFRESH_MS = 15_000;
/** Of a node, newest first, among which those of one GPU are looked for. */
const LATEST = 500;
const OVER = "released,expired,preempted,cancelled,lost";

export const pastHoldersOptions = (nodeId: string) =>
  queryOptions({
    queryKey: ["reservations", "past", nodeId],
    queryFn: ({ signal }) =>
      api<ReservationList>("/reservations", { query: { node_id: nodeId, state: OVER, limit: LATEST }, signal }),
    refetchInterval: REFRESH_MS,
    select: ({ reservations }) => reservations,
  });
