import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { allOf } from "@/lib/api-client";

const REFRESH_MS = 15_000;

export const secretsOptions = queryOptions({
  queryKey: ["secrets"],
  queryFn: ({ signal }) => allOf(endpoints.listSecrets, (page) => page.secrets, { signal }),
  refetchInterval: REFRESH_MS,
});
