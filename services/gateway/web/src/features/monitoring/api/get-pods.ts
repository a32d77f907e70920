import { useQuery } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { GpuKind } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { rangeQuery } from "@/lib/time-range";

const REFRESH_MS = 30_000;

/** Which pods had GPUs in the time. */
export function usePods(range: string, namespace: string | null, kind_of_gpu: GpuKind | null) {
  return useQuery({
    queryKey: ["pods", range, namespace, kind_of_gpu],
    queryFn: ({ signal }) =>
      api(endpoints.listPods, {
        query: { ...rangeQuery(range, Date.now()), namespace, kind_of_gpu },
        signal,
      }),
    refetchInterval: REFRESH_MS,
    placeholderData: (before) => before,
  });
}
