import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import type { ReservationView } from "@schemas/messages";
import { holderOf } from "@/domain/holder";
import { api } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";

export type ReservationChange = "renew" | "release";

interface Change {
  change: ReservationChange;
  of: ReservationView;
  /** Of a release: nothing of it runs any more, so that its GPUs are free at once. */
  isStopped: boolean;
}

/** Renews a lease from now on, or gives the GPUs back. */
export function useChangeReservation() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async ({ change, of, isStopped }: Change) => {
      const { reservation_id, epoch } = of;
      const place = { reservation_id };
      if (change === "renew") {
        await api(endpoints.renewReservation, { place, body: { epoch: epoch ?? 0 } });
      } else {
        const query = { epoch, stopped: isStopped, reason: "released on the page" };
        await api(endpoints.endReservation, { place, query });
      }
    },
    // Said here: what was released is gone from the page, and its dialog with it.
    onSuccess: (_, { change, of }) => {
      const name = holderOf(of.holder).name || of.reservation_id;
      showToast({ text: `${change === "renew" ? t`Renewed` : t`Released`}: ${name}` });
    },
    onSettled: () => client.invalidateQueries(aboutTopic("reservations")),
  });
}
