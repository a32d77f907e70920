import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

const REFRESH_MS = 2_000;

export const engineSeriesOptions = (experimentId: string, isRunning: boolean) =>
  queryOptions({
    queryKey: ["experiments", "engine", experimentId],
    queryFn: ({ signal }) =>
      api(endpoints.getEngineSeries, { place: { experiment_id: experimentId }, signal }),
    refetchInterval: isRunning && REFRESH_MS,
    placeholderData: (before) => before,
  });
