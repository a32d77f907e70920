import { infiniteQueryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

const NEWEST = Number.MAX_SAFE_INTEGER;

/** Newest first. */
export const decisionsOptions = (reservationId: string) =>
  infiniteQueryOptions({
    queryKey: ["decisions", reservationId],
    queryFn: ({ signal, pageParam }) =>
      api(endpoints.listDecisions, {
        query: { reservation_id: reservationId || null, before_id: pageParam, limit: 50 },
        signal,
      }),
    initialPageParam: NEWEST,
    getNextPageParam: (last) => last.next_before_id,
  });
