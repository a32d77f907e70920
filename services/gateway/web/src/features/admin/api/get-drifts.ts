import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { allOf } from "@/lib/api-client";

const REFRESH_MS = 5_000;

/** With `ended` also those that ended within a day. */
export const driftsOptions = (ended: boolean) =>
  queryOptions({
    queryKey: ["drifts", ended],
    queryFn: ({ signal }) =>
      allOf(endpoints.listDrifts, (page) => page.drifts, { query: { ended }, signal }),
    refetchInterval: REFRESH_MS,
  });
