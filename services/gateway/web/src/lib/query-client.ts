import { QueryClient } from "@tanstack/react-query";
import type { ErrorCode } from "@schemas/messages";
import { ApiError } from "./api-client";

const RETRYABLE = new Set<string>([
  "unavailable",
  "timeout",
  "too_many_requests",
] satisfies ErrorCode[]);

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
    // A change without a connection has failed: it is not sent by itself minutes later.
    mutations: { networkMode: "always" },
  },
});

const AGAIN_MS = 3_000;
const MOST_PAUSES = 8;

interface Answered {
  state: { data?: { missing: string[] }; dataUpdateCount: number };
}

/**
 * What lacks the part of a service that did not answer is asked for again, each time later: a page of
 * many experiments would keep a busy service busy.
 */
export const untilWhole = ({ state }: Answered) =>
  state.data?.missing.length ? AGAIN_MS * Math.min(state.dataUpdateCount, MOST_PAUSES) : false;
