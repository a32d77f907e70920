import { queryOptions } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

const REFRESH_MS = 5_000;

export const explanationOptions = (reservationId: string) =>
  queryOptions({
    queryKey: ["reservations", "explanation", reservationId],
    queryFn: ({ signal }) =>
      api(endpoints.explainReservation, { place: { reservation_id: reservationId }, signal }),
    refetchInterval: REFRESH_MS,
  });
