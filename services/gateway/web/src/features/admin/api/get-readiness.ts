import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { ApiError, textAt } from "@/lib/api-client";

const REFRESH_MS = 5_000;

export interface Readiness {
  missing: string[];
  detail: string;
}

/** Names of what does not answer; fails where the gateway itself does not. */
export const readinessOptions = queryOptions({
  queryKey: ["readiness"],
  queryFn: async ({ signal }): Promise<Readiness> => {
    try {
      await textAt(endpoints.isReady, { signal });
      return { missing: [], detail: "" };
    } catch (error) {
      const missing = error instanceof ApiError ? error.problem.details?.missing : undefined;
      if (!(error instanceof ApiError) || !Array.isArray(missing)) throw error;
      return { missing: missing.map(String), detail: error.problem.detail };
    }
  },
  refetchInterval: REFRESH_MS,
  retry: false,
});
