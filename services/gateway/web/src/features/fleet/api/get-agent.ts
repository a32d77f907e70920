import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

const REFRESH_MS = 15_000;

/** What the agent of a node says itself; it fails where the agent does not answer. */
export const agentOptions = (nodeId: string) =>
  queryOptions({
    queryKey: ["nodes", "agent", nodeId],
    queryFn: ({ signal }) => api(endpoints.getAgent, { place: { node_id: nodeId }, signal }),
    refetchInterval: REFRESH_MS,
    retry: false,
  });
