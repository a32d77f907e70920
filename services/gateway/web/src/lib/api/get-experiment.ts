import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";
import { untilWhole } from "@/lib/query-client";

/** With the levels of its benchmark, which lists leave out. */
export const experimentOptions = (experimentId: string) =>
  queryOptions({
    queryKey: ["experiments", "one", experimentId],
    queryFn: ({ signal }) =>
      api(endpoints.getExperiment, { place: { experiment_id: experimentId }, signal }),
    refetchInterval: untilWhole,
  });
