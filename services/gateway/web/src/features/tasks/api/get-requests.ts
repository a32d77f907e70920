import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

/** The requests of one level of a benchmark, which never change. */
export const requestsOptions = (experimentId: string, level: number) =>
  queryOptions({
    queryKey: ["requests", experimentId, level],
    queryFn: ({ signal }) =>
      api(endpoints.getRequests, {
        place: { experiment_id: experimentId },
        query: { level },
        signal,
      }),
    staleTime: Infinity,
  });
