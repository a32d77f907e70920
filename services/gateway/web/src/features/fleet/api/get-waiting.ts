import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

/** The first thousand requests that wait. */
export const waitingOptions = queryOptions({
  queryKey: ["reservations", "waiting"],
  queryFn: ({ signal }) =>
    api(endpoints.listReservations, { query: { state: "queued", limit: 1000 }, signal }),
});
