import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

const REFRESH_MS = 60_000;

/** Where GPU time went since the day began; `day` as `Date.toDateString` has it. */
export const gpuTimeOfDayOptions = (day: string) =>
  queryOptions({
    queryKey: ["reports", "gpu-time of day", day],
    queryFn: ({ signal }) =>
      api(endpoints.getGpuTime, {
        query: { start_at: new Date(day).toISOString() },
        signal,
      }),
    refetchInterval: REFRESH_MS,
  });
