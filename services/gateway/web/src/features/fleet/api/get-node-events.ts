import { infiniteQueryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

const PAGE_EVENTS = 50;

/** What happened on a node, newest first. */
export const nodeEventsOptions = (nodeId: string) =>
  infiniteQueryOptions({
    queryKey: ["events", "of node", nodeId],
    queryFn: ({ signal, pageParam }) =>
      api(endpoints.listNodeEvents, {
        place: { node_id: nodeId },
        query: { before_id: pageParam, limit: PAGE_EVENTS },
        signal,
      }),
    initialPageParam: null as number | null,
    getNextPageParam: (last) => (last.events.length < PAGE_EVENTS ? null : last.cursor),
  });
