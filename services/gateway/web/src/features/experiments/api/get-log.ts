import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

/** The end of what its engine wrote; of what runs `/ws/logs` has the rest. */
export const logOptions = (
  experimentId: string,
  attemptId: string | undefined,
  isRunning: boolean,
) =>
  queryOptions({
    queryKey: ["logs", experimentId, attemptId, isRunning],
    queryFn: ({ signal }) =>
      api(endpoints.readLog, {
        place: { experiment_id: experimentId },
        query: { lines: 500 },
        signal,
      }),
  });
