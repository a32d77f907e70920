import { queryOptions } from "@tanstack/react-query";
import type { ReservationView } from "@schemas/messages";
import { allOf } from "@/lib/api-client";

const REFRESH_MS = 5_000;

/** Reservations that hold GPUs, by id; a foreign one is not there. */
export const holdingOptions = queryOptions({
  queryKey: ["reservations", "holding"],
  queryFn: ({ signal }) =>
    allOf<"reservations", ReservationView>("/reservations", "reservations", {
      query: { state: "granted,active,releasing", limit: 1000 },
      signal,
    }),
  refetchInterval: REFRESH_MS,
  select: (found) => new Map(found.map((each) => [each.reservation_id, each])),
});
