import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { Objective } from "@schemas/messages";
import { api } from "@/lib/api-client";

/** The best of a model by an objective; without a model the measured models alone. */
export const leadersOptions = (model: string, objective: Objective, namespace: string) =>
  queryOptions({
    queryKey: ["experiments", "leaders", model, objective, namespace],
    queryFn: ({ signal }) =>
      api(endpoints.listLeaders, {
        query: { model: model || null, objective, namespace: namespace || null, limit: 500 },
        signal,
      }),
  });
