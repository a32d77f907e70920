import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { ReservationRequest } from "@schemas/messages";
import { api } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";

/** Asks for GPUs; where none are free it waits in the queue. */
export function useReserve() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: ReservationRequest) => api(endpoints.requestReservation, { body }),
    onSuccess: ({ state, holder, reservation_id: id }) =>
      showToast({
        text: `${holder || id}: ${state === "queued" ? t`waits in the queue` : t`reserved`}`,
      }),
    onSettled: () => client.invalidateQueries(aboutTopic("reservations")),
  });
}
