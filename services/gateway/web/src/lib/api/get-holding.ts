import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { LIVE_RESERVATION_STATES } from "@schemas/messages";
import { allOf } from "@/lib/api-client";

const REFRESH_MS = 5_000;

/** Reservations that hold GPUs, by id; a foreign one is not there. */
export const holdingOptions = queryOptions({
  queryKey: ["reservations", "holding"],
  queryFn: ({ signal }) =>
    allOf(endpoints.listReservations, (page) => page.reservations, {
      query: { state: LIVE_RESERVATION_STATES.join(), limit: 1000 },
      signal,
    }),
  refetchInterval: REFRESH_MS,
  select: (reservations) =>
    new Map(reservations.map((reservation) => [reservation.reservation_id, reservation])),
});
