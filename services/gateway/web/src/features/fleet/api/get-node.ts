import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

const REFRESH_MS = 5_000;

/** With the links between its GPUs, which the list leaves out. */
export const nodeOptions = (nodeId: string) =>
  queryOptions({
    queryKey: ["nodes", "one", nodeId],
    queryFn: ({ signal }) => api(endpoints.getNode, { place: { node_id: nodeId }, signal }),
    refetchInterval: REFRESH_MS,
  });
