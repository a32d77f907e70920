import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { ReservationView } from "@schemas/messages";
import { allOf } from "@/lib/api-client";

const REFRESH_MS = 5_000;

const placeOf = ({ queue_position: place }: ReservationView) => place ?? Number.MAX_SAFE_INTEGER;

/** First in the queue first; a namespace's own without losing their place. */
export const queueOptions = (namespace: string) =>
  queryOptions({
    queryKey: ["reservations", "queue", namespace],
    queryFn: async ({ signal }) => {
      const query = { state: "queued", limit: 1000, namespace: namespace || null };
      const waiting = await allOf(endpoints.listReservations, (page) => page.reservations, {
        query,
        signal,
      });
      return waiting.sort((a, b) => placeOf(a) - placeOf(b));
    },
    refetchInterval: REFRESH_MS,
  });
