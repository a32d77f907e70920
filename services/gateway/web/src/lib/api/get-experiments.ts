import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api, type Query } from "@/lib/api-client";

/** The newest of all tasks first, without their GPU monitoring. */
export const experimentsOptions = (query: Query) =>
  queryOptions({
    queryKey: ["experiments", "list", query],
    queryFn: ({ signal }) =>
      api(endpoints.listExperiments, {
        query: { ...query, monitoring: false },
        signal,
      }),
  });
