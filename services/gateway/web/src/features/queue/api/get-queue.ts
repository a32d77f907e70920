import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import type { Explanation, GpuRequest, ReservationView } from "@schemas/messages";
import { allOf, api } from "@/lib/api-client";

const REFRESH_MS = 5_000;

/** First in the queue first; a namespace's own without losing their place. */
export function queueOptions(namespace: string) {
  return queryOptions({
    queryKey: ["reservations", "queue", namespace],
    queryFn: async ({ signal }) => {
      const query = { state: "queued", limit: 1000, namespace: namespace || null };
      const path = "/reservations";
      const found = await allOf<"reservations", ReservationView>(path, "reservations", { query, signal });
      return found.sort((a, b) => place(a) - place(b));
    },
    refetchInterval: REFRESH_MS,
  });
}

function place(reservation: ReservationView): number {
  return reservation.queue_position ?? Number.MAX_SAFE_INTEGER;
}

export function explanationOptions(reservationId: string) {
  return queryOptions({
    queryKey: ["reservations", "explanation", reservationId],
    queryFn: ({ signal }) => api<Explanation>(`/reservations/${reservationId}/explain`, { signal }),
    refetchInterval: REFRESH_MS,
  });
}

export interface Replacement {
  waiting: ReservationView;
  request: GpuRequest;
}

/** Asks for the smaller request and withdraws the one that waits, in this order: none is lost. */
export function useReplaceRequest() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async ({ waiting, request }: Replacement) => {
      const { namespace, holder, reservation_id } = waiting;
      await api("/reservations", { method: "POST", body: { namespace, holder, request } });
      await api(`/reservations/${reservation_id}`, { method: "DELETE" });
    },
    onSettled: () => client.invalidateQueries({ queryKey: ["reservations"] }),
  });
}
