import { queryOptions } from "@tanstack/react-query";
import type { UsageView } from "@schemas/messages";
import { api } from "@/lib/api-client";

const DAYS = 30;
const HOUR_MS = 3600e3;

/** What GPU models cost in the last days: of those that nobody held no price is known. */
export const pricesOptions = queryOptions({
  queryKey: ["reports", "prices"],
  queryFn: ({ signal }) =>
    api<UsageView>("/reports/gpu-time", {
      query: { by: "model", start_at: new Date(Date.now() - DAYS * 24 * HOUR_MS).toISOString() },
      signal,
    }),
  staleTime: HOUR_MS,
});
