import { queryOptions } from "@tanstack/react-query";
import type { EngineSeriesView, ExperimentDetail, SeriesMetric, SeriesView, TaskView } from "@schemas/messages";
import { allEvents } from "@/lib/all-events";
import { api } from "@/lib/api-client";
import { untilWhole } from "@/lib/query-client";

export const experimentOptions = (experimentId: string) =>
  queryOptions({
    queryKey: ["experiments", "one", experimentId],
    queryFn: ({ signal }) => api<ExperimentDetail>(`/experiments/${experimentId}`, { signal }),
    refetchInterval: untilWhole,
  });

export const ownTaskOptions = (taskId: string) =>
  queryOptions({
    queryKey: ["tasks", "one", taskId],
    queryFn: ({ signal }) => api<TaskView>(`/tasks/${taskId}`, { signal }),
  });

export const ownEventsOptions = (experimentId: string) =>
  queryOptions({
    queryKey: ["experiments", "own-events", experimentId],
    queryFn: ({ signal }) => allEvents({ experiment_id: experimentId }, signal),
  });

const ENGINE_REFRESH_MS = 2_000;

export const engineSeriesOptions = (experimentId: string, isRunning: boolean) =>
  queryOptions({
    queryKey: ["experiments", "engine", experimentId],
    queryFn: ({ signal }) => api<EngineSeriesView>(`/experiments/${experimentId}/engine`, { signal }),
    refetchInterval: isRunning && ENGINE_REFRESH_MS,
  });

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
export const seriesOptions = ({ experiment, metric, startMs, endMs, isRunning }: SeriesOfRun) =>
  queryOptions({
    // While it runs the end moves on, and the newest samples are asked for by the same key.
    queryKey: ["series", experiment.experiment_id, metric, startMs, isRunning ? "now" : endMs],
    queryFn: ({ signal }) => {
      const nodes = new Set(experiment.gpu_info?.details.map((each) => each.node_id));
      const [node = null] = nodes;
      return api<SeriesView>("/series", {
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
  });
