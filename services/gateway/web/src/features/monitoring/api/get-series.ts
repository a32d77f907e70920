import { useQuery } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { GpuKind, SeriesBy, SeriesMetric } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { rangeQuery } from "@/lib/time-range";

export interface Filters {
  node_id: string | null;
  gpu_model: string | null;
  kind_of_gpu: GpuKind | null;
  namespace: string | null;
  pod_namespace: string | null;
  pod: string | null;
}

const REFRESH_MS = 10_000;
const POINTS = 240;

export function useSeries(metric: SeriesMetric, by: SeriesBy, range: string, filters: Filters) {
  return useQuery({
    queryKey: ["series", "by", by, metric, range, filters],
    queryFn: ({ signal }) =>
      api(endpoints.getSeries, {
        query: { metric, by, ...rangeQuery(range, Date.now()), points: POINTS, ...filters },
        signal,
      }),
    refetchInterval: REFRESH_MS,
    placeholderData: (before) => before,
  });
}
