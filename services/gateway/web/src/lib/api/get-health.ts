import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { textAt } from "@/lib/api-client";

const TIMEOUT_MS = 4_000;

/** Whether the gateway answers at all; asked even where the browser believes to be offline. */
export const healthOptions = queryOptions({
  queryKey: ["health"],
  queryFn: () => textAt(endpoints.isAlive, { signal: AbortSignal.timeout(TIMEOUT_MS) }),
  refetchInterval: TIMEOUT_MS,
  retry: false,
  networkMode: "always",
});
