import { queryOptions } from "@tanstack/react-query";
import type { SeriesMetric, SeriesView } from "@schemas/messages";
import { api } from "@/lib/api-client";

const REFRESH_MS = 10_000;

/** A metric of one GPU, with the least and the most of each bucket. */
export function seriesOptions(nodeId: string, uuid: string, metric: SeriesMetric, range: string) {
  return queryOptions({
    queryKey: ["series", nodeId, uuid, metric, range],
    queryFn: ({ signal }) => {
      const start_at = new Date(Date.now() - secondsOf(range) * 1000).toISOString();
      const query = { node_id: nodeId, device_uuid: uuid, metric, start_at, points: 300 };
      return api<SeriesView>("/series", { query, signal });
    },
    refetchInterval: REFRESH_MS,
    placeholderData: (before) => before,
  });
}

const UNIT_SECONDS: Record<string, number> = { m: 60, h: 3_600, d: 86_400 };

export function secondsOf(range: string): number {
  const [, count, unit] = /^(\d+)([mhd])$/.exec(range) ?? [];
  return count && unit ? Number(count) * (UNIT_SECONDS[unit] ?? 0) : 3_600;
}
