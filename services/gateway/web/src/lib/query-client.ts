import { QueryClient } from "@tanstack/react-query";
import { ApiError } from "./api-client";

const RETRYABLE = new Set(["unavailable", "timeout", "too_many_requests"]);

/** Events say what is stale; the interval is for what no event tells, such as leases renewed. */
export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      refetchOnWindowFocus: false,
      retry: (failures, error) =>
        failures < 5 && error instanceof ApiError && RETRYABLE.has(error.problem.code),
      retryDelay: (failures) => Math.min(8_000, 500 * 2 ** failures),
    },
  },
});

const AGAIN_MS = 3_000;

/** What lacks the part of a service that did not answer is asked for again. */
export const untilWhole = ({ state }: { state: { data?: { missing: string[] } } }) =>
  state.data?.missing.length ? AGAIN_MS : false;
