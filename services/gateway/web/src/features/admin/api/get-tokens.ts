import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { allOf } from "@/lib/api-client";

const REFRESH_MS = 5_000;

export const tokensOptions = queryOptions({
  queryKey: ["tokens"],
  queryFn: ({ signal }) => allOf(endpoints.listTokens, (page) => page.tokens, { signal }),
  refetchInterval: REFRESH_MS,
});
