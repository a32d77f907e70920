import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { GpuRequest, ReservationView } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";

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
      await api(endpoints.requestReservation, { body: { namespace, holder, request } });
      await api(endpoints.endReservation, { place: { reservation_id } });
    },
    onSuccess: () => showToast({ text: "The smaller request waits instead" }),
    onSettled: () => client.invalidateQueries(aboutTopic("reservations")),
  });
}
