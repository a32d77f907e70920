import { queryOptions, skipToken } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { GpuRequest } from "@schemas/messages";
import { api } from "@/lib/api-client";

const REFRESH_MS = 10_000;

/** When such a request would start; nothing is fetched without one. */
export const availabilityOptions = (request: GpuRequest | undefined) =>
  queryOptions({
    queryKey: ["availability", request],
    queryFn:
      request === undefined
        ? skipToken
        : ({ signal }) => api(endpoints.checkAvailability, { body: request, signal }),
    refetchInterval: REFRESH_MS,
  });
