import type { Reason, ReasonCode, ReservationView } from "@schemas/messages";
import { groupBy } from "@/lib/group-by";
import { holderOf } from "./holder";

/** Reasons for which a GPU could never serve the request, however long it waits. */
const NEVER = new Set<ReasonCode>([
  "node_mismatch",
  "model_mismatch",
  "uuid_mismatch",
  "compute_capability_mismatch",
  "cuda_driver_mismatch",
  "numa_mismatch",
  "index_mismatch",
  "label_mismatch",
  "insufficient_total_memory",
  "mig_profile_mismatch",
  "not_divisible",
]);
const OF_QUOTA = new Set<ReasonCode>(["over_quota", "exceeds_quota"]);

export const isOverQuota = (reasons: Reason[]): boolean =>
  reasons.some(({ code }) => OF_QUOTA.has(code));

/** The reasons that time can change, and how many GPUs have one that it cannot. */
export function withoutUnfit(reasons: Reason[]): { reasons: Reason[]; unfit: number } {
  const unfit = new Set(
    reasons.flatMap(({ code, device_uuid: uuid }) => (uuid && NEVER.has(code) ? [uuid] : [])),
  );
  return {
    reasons: reasons.filter(({ device_uuid: uuid }) => !uuid || !unfit.has(uuid)),
    unfit: unfit.size,
  };
}

export interface Blocker {
  name: string;
  gpus: number;
  reservation: ReservationView;
}

/** Who holds GPUs that would serve the request, who holds most of them first. */
export function blockersOf(reasons: Reason[], holding: Iterable<ReservationView>): Blocker[] {
  const fit = withoutUnfit(reasons).reasons;
  const heldUuids = new Set(
    fit.flatMap(({ code, device_uuid: uuid }) => (code === "held" && uuid ? [uuid] : [])),
  );
  const holders = [...holding].map((reservation) => ({
    name: holderOf(reservation.holder).name || reservation.reservation_id.slice(-12),
    gpus: reservation.devices.filter(({ uuid }) => heldUuids.has(uuid)).length,
    reservation,
  }));
  const byName = groupBy(
    holders.filter(({ gpus }) => gpus > 0),
    ({ name }) => name,
  );
  return [...byName.values()]
    .flatMap(([first, ...more]) =>
      first ? [{ ...first, gpus: [first, ...more].reduce((sum, { gpus }) => sum + gpus, 0) }] : [],
    )
    .sort((a, b) => b.gpus - a.gpus);
}
