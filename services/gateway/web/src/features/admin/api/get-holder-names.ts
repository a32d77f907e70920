import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

const LATEST = 1000;

/** Holders of the latest reservations in any state, by id. */
export const holderNamesOptions = queryOptions({
  queryKey: ["reservations", "names"],
  queryFn: ({ signal }) => api(endpoints.listReservations, { query: { limit: LATEST }, signal }),
  select: ({ reservations }) =>
    new Map(reservations.map(({ reservation_id: id, holder }) => [id, holder])),
});
