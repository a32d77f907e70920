import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useRef } from "react";
import * as endpoints from "@schemas/endpoints";
import type { GpuRequest, ReservationView } from "@schemas/messages";
import { holderOf } from "@/domain/holder";
import { requestText } from "@/domain/request-words";
import { api } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";

export interface Replacement {
  waiting: ReservationView;
  request: GpuRequest;
}

/**
 * Asks for the smaller request and withdraws the one that waits, in this order: none is lost. Where
 * only the second failed, it alone is tried again.
 */
export function useReplaceRequest() {
  const client = useQueryClient();
  const made = useRef<ReservationView | null>(null);
  return useMutation({
    mutationFn: async ({ waiting, request }: Replacement) => {
      const { namespace, holder, reservation_id } = waiting;
      made.current ??= await api(endpoints.requestReservation, {
        body: { namespace, holder, request },
      });
      await api(endpoints.endReservation, { place: { reservation_id } });
      return made.current;
    },
    onSuccess: ({ holder, state, reservation_id: id, request }) => {
      const [name, what] = [holderOf(holder).name || id, requestText(request)];
      showToast({
        text:
          state === "queued"
            ? t`${name} waits for ${what} instead`
            : t`${name} has ${what} instead`,
      });
    },
    onSettled: () => client.invalidateQueries(aboutTopic("reservations")),
  });
}
