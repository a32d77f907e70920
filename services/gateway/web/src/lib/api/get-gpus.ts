import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { allOf } from "@/lib/api-client";

/** Ledger and newest reading; between two answers `/ws/metrics` has newer readings. */
export const gpusOptions = queryOptions({
  queryKey: ["gpus"],
  queryFn: ({ signal }) => allOf(endpoints.listGpus, (page) => page.gpus, { signal }),
});
