import { infiniteQueryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

export const decisionsOptions = (reservationId: string, afterId: number) =>
  infiniteQueryOptions({
    queryKey: ["decisions", reservationId, afterId],
    queryFn: ({ signal, pageParam }) =>
      api(endpoints.listDecisions, {
        query: { reservation_id: reservationId || null, after_id: pageParam, limit: 100 },
        signal,
      }),
    initialPageParam: afterId,
    getNextPageParam: (last) => last.next_after_id,
  });
