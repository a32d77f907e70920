import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { textAt } from "@/lib/api-client";

const REFRESH_MS = 5_000;

/** The gateway's metrics in Prometheus' text format. */
export const metricsOptions = queryOptions({
  queryKey: ["metrics"],
  queryFn: ({ signal }) => textAt(endpoints.metrics, { signal }),
  refetchInterval: REFRESH_MS,
});
