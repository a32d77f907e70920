import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { allOf } from "@/lib/api-client";

export const nodesOptions = queryOptions({
  queryKey: ["nodes"],
  queryFn: ({ signal }) => allOf(endpoints.listNodes, (page) => page.nodes, { signal }),
});
