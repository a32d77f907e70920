import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { ExperimentDetail, SeriesMetric } from "@schemas/messages";
import { api } from "@/lib/api-client";

interface SeriesOfRun {
  experiment: ExperimentDetail;
  metric: SeriesMetric;
  startMs: number;
  endMs: number;
  isRunning: boolean;
}

/**
 * Samples of this experiment's GPUs from start to end. Only what was measured is stored as its own;
 * else its nodes are asked, and the caller takes its devices.
 */
export const gpuSeriesOptions = ({ experiment, metric, startMs, endMs, isRunning }: SeriesOfRun) =>
  queryOptions({
    // While it runs the end moves on, and the newest samples are asked for by the same key.
    queryKey: [
      "series",
      "of experiment",
      experiment.experiment_id,
      metric,
      startMs,
      isRunning ? "now" : endMs,
    ],
    queryFn: ({ signal }) => {
      const nodes = new Set(experiment.gpu_info?.details.map((device) => device.node_id));
      const [node = null] = nodes;
      return api(endpoints.getSeries, {
        query: {
          ...(experiment.gpu_monitoring
            ? { experiment_id: experiment.experiment_id }
            : { node_id: nodes.size === 1 ? node : null }),
          metric,
          start_at: new Date(startMs).toISOString(),
          end_at: new Date(isRunning ? Date.now() : endMs).toISOString(),
          points: 300,
        },
        signal,
      });
    },
    refetchInterval: isRunning ? 2_000 : false,
    staleTime: isRunning ? 0 : Infinity,
    placeholderData: (before) => before,
  });
