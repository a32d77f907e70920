import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { allOf } from "@/lib/api-client";

const REFRESH_MS = 5_000;

export const myTokensOptions = queryOptions({
  queryKey: ["tokens", "mine"],
  queryFn: ({ signal }) =>
    allOf(endpoints.listTokens, (page) => page.tokens, { signal, query: { mine: true } }),
  refetchInterval: REFRESH_MS,
});
