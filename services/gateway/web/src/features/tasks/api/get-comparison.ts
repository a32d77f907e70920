import { queryOptions, skipToken } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

export const LEAST_COMPARED = 2;
export const MOST_COMPARED = 8;

/** Of any tasks, in the order of their ids; nothing is asked for fewer than two. */
export const comparisonOptions = (ids: string[]) =>
  queryOptions({
    queryKey: ["experiments", "comparison", ids],
    queryFn:
      ids.length < LEAST_COMPARED
        ? skipToken
        : ({ signal }) =>
            api(endpoints.compareExperiments, { query: { experiments: ids.join(",") }, signal }),
  });
