import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

/** Those of the release, which do not change while it runs. */
export const enginesOptions = queryOptions({
  queryKey: ["engines"],
  queryFn: async ({ signal }) => (await api(endpoints.listEngines, { signal })).engines,
  staleTime: Infinity,
});
