import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { SeriesMetric } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { rangeQuery } from "@/lib/time-range";

const REFRESH_MS = 10_000;

/** A metric of one GPU, with the least and the most of each bucket. */
export function seriesOptions(nodeId: string, uuid: string, metric: SeriesMetric, range: string) {
  return queryOptions({
    queryKey: ["series", "of gpu", nodeId, uuid, metric, range],
    queryFn: ({ signal }) => {
      const query = {
        node_id: nodeId,
        device_uuid: uuid,
        metric,
        ...rangeQuery(range, Date.now()),
        points: 300,
      };
      return api(endpoints.getSeries, { query, signal });
    },
    refetchInterval: REFRESH_MS,
    placeholderData: (before) => before,
  });
}
